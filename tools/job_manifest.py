r"""Prints the manifest of a training job for Kubernetes or Vertex AI, as YAML.

    python -m tools.job_manifest --kind=job --name=digits --image=REGISTRY/models:1 -- \
      --flagfile=configs/digits.cfg --data_dir=gs://my-bucket/digits \
      --model_dir=gs://my-bucket/runs/digits | kubectl create -f -

Arguments after `--` are flags of the program in the image. docs/kubernetes.md explains the kinds.
"""

from __future__ import annotations

import re
import sys

from common.errors import UsageError
from engine.cli import startup
from tools.manifests import kubernetes, program, request, vertex
from tools.manifests.flags import FLAGS

# Strings that every YAML reader takes for a string. YAML 1.1, which kubectl reads, has many words
# and notations for other values, such as `y`, `off`, `1_0` and `0o7`.
_PLAIN = re.compile(r"(?!(?:true|false|yes|no|on|off|null)$)[a-z][a-z0-9./-]*[a-z0-9]", re.I)


def main() -> None:
    """Prints the manifest of the command line."""
    _, arguments = _split(sys.argv)
    flags_of_program = program.parse(request.program_of(FLAGS), arguments, __doc__)
    wanted = request.from_flags(FLAGS, arguments, flags_of_program)
    print(to_yaml(documents(wanted)), end="")
    for path in program.missing_flagfiles(arguments):
        _warn(f"--flagfile={path} is not on this machine: the flags after -- are not checked")
    if wanted.is_vertex and "evaluator" in wanted.roles:
        _warn(
            "Vertex AI stops the evaluator when the chief exits. Submit the same job without "
            "--workers and --ps afterwards: it evaluates the last checkpoint and exports"
        )


def _warn(text):
    print(f"job_manifest.py: {text}", file=sys.stderr)


def documents(wanted: request.Request) -> list[dict]:
    """Returns the manifest, a list of YAML documents."""
    if wanted.kind == "vertex":
        return [vertex.custom_job(wanted)]
    kinds = {
        "job": kubernetes.job,
        "tpu_job": kubernetes.job,
        "indexed_jobs": kubernetes.indexed_jobs,
        "jobset": kubernetes.jobset,
        "tfjob": kubernetes.tfjob,
    }
    return kinds[wanted.kind](wanted)


def to_yaml(objects: list[dict]) -> str:
    """Returns YAML in which every string is read as a string.

    Raises:
      UsageError: PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        raise UsageError("PyYAML is missing. Install it: pip install pyyaml") from error

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data):
            return True

    def represent(dumper, text):
        style = None if _PLAIN.fullmatch(text) else "'"
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    return yaml.dump_all(objects, Dumper=Dumper, sort_keys=False, width=10**6)


def _split(argv):
    """Returns the flags of this program and those after `--`."""
    end = argv.index("--") if "--" in argv else len(argv)
    return argv[1:end], argv[end + 1 :]


if __name__ == "__main__":
    startup.start([sys.argv[0], *_split(sys.argv)[0]], __doc__, "tools.manifests.flags")
    startup.run(main)
