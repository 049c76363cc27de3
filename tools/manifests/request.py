"""A validated request for a manifest. Every string in it may be written to YAML."""

from __future__ import annotations

import dataclasses
import posixpath
import re

from common.errors import UsageError
from tools.manifests import checks
from tools.manifests.checks import LABEL, SUBDOMAIN, match
from tools.manifests.flags import CLUSTER_KINDS
from tools.manifests.program import ProgramFlags

ROLES = ("chief", "worker", "ps", "evaluator")

_IMAGE = re.compile(
    r"[a-zA-Z0-9][\w.-]*(:\d+)?(/[a-z0-9][a-z0-9._-]*)*(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_CPUS = re.compile(r"(?!0+(\.0*)?\D*$)\d+(\.\d+)?m?", re.ASCII)
# Without a unit Kubernetes counts bytes.
_MEMORY = re.compile(r"(?!0+(\.0*)?\D*$)\d+(\.\d+)?[MGT]i?", re.ASCII)
_LABEL_KEY = re.compile(
    r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", re.ASCII
)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_TOLERATION = re.compile(r"([^=:]+)(?:=([^=:]*))?:(NoSchedule|PreferNoSchedule|NoExecute)")
_ENV = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MACHINE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")
# Flags that are fields as they are; `checks` validates some.
_UNCHANGED = (
    *("kind", "name", "gpus", "gpu_type", "tpu_topology", "spot", "service_account", "user_id"),
    *("max_restarts", "grace_period_secs", "deadline_secs"),
)
# The kubelet and the Job controller set these.
_RESERVED_ENV = ("TF_CONFIG", "TASK_INDEX", "JOB_COMPLETION_INDEX")


@dataclasses.dataclass(frozen=True)
class Request:
    """What a manifest runs, and on which machines.

    Attributes:
      kind: --kind.
      name: of the job, and the beginning of its pods' names.
      namespace: "" for the one that kubectl uses.
      image: with a tag or digest.
      command: the program and its flags.
      roles: `{role: number of processes}` of a cluster; empty for one process.
      cpu, memory: of a pod, Kubernetes quantities.
      gpus: of the chief and of each worker.
      gpu_type: "" for any.
      machine_type: of Vertex AI.
      tpu_topology: "" without a TPU.
      spot: True for preemptible machines.
      node_selector: labels of the nodes.
      tolerations: Kubernetes tolerations.
      volumes: `{mount path: PersistentVolumeClaim}`.
      env: environment variables.
      service_account: "" for the default one.
      user_id: of the process and its group.
      max_restarts, grace_period_secs, deadline_secs, ttl_secs: see the flags of the same names.
    """

    kind: str
    name: str
    namespace: str
    image: str
    command: list[str]
    roles: dict[str, int]
    cpu: str
    memory: str
    gpus: int
    gpu_type: str
    machine_type: str
    tpu_topology: str
    spot: bool
    node_selector: dict[str, str]
    tolerations: list[dict[str, str]]
    volumes: dict[str, str]
    env: dict[str, str]
    service_account: str
    user_id: int
    max_restarts: int
    grace_period_secs: int
    deadline_secs: int
    ttl_secs: int

    @property
    def is_synchronous(self) -> bool:
        """True for a cluster without parameter servers, where no process can rejoin the others."""
        return bool(self.roles) and "ps" not in self.roles

    @property
    def is_vertex(self) -> bool:
        """True for Vertex AI, False for Kubernetes."""
        return self.kind == "vertex"

    def has_gpus(self, role: str) -> bool:
        """True if the pods of a role use GPUs; role is "" for a job of one process."""
        return self.gpus > 0 and role in ("", "chief", "worker")


def from_flags(values, arguments: list[str], program_flags: ProgramFlags) -> Request:
    """Returns the request of the parsed flags.

    Args:
      values: parsed flags of tools/job_manifest.py.
      arguments: flags of the program.
      program_flags: the same, parsed.

    Raises:
      UsageError: a flag is missing or invalid, or flags contradict each other.
    """
    default_ttl = 3600 if values.kind == "tfjob" else 86400
    request = Request(
        namespace=match("namespace", values.namespace, LABEL, "a name such as trainings"),
        image=_check_image(values.image),
        command=[program_of(values), *arguments, *_tpu_flags(values, arguments)],
        roles=_roles(values),
        cpu=match("cpu", values.cpu, _CPUS, "a quantity such as 4 or 500m"),
        memory=match("memory", values.memory, _MEMORY, "a quantity with a unit, such as 8Gi"),
        machine_type=match("machine_type", values.machine_type, _MACHINE, "like n1-standard-8"),
        node_selector=_mapping("node_selector", values.node_selector, _label),
        tolerations=list(map(_toleration, values.toleration)),
        volumes=_mapping("volume", values.volume, _volume),
        env=_mapping("env", values.env, _env),
        ttl_secs=default_ttl if values.ttl_secs is None else values.ttl_secs,
        **{name: values[name].value for name in _UNCHANGED},
    )
    checks.check(request, values, program_flags)
    return request


def program_of(values) -> str:
    """Returns the name of the program in the image.

    Raises:
      UsageError: a flag that every manifest needs is missing.
    """
    for flag in ("kind", "name", "image"):
        if not values[flag].value:
            raise UsageError(f"--{flag} is missing. Add --{flag}=...")
    return values.program or ("run_tpu.py" if values.kind == "tpu_job" else "run_cpu.py")


def _check_image(image):
    if not _IMAGE.fullmatch(image):
        raise UsageError(f"--image={image} is not an image name such as us-docker.pkg.dev/p/r/m:1")
    name, _, tag = image.rpartition("/")[2].partition(":")
    if "@" not in name and tag in ("", "latest"):
        raise UsageError(
            f"--image={image} has no version: a restarted pod might run other code than before. "
            "Add a tag such as :1, or @sha256:DIGEST"
        )
    return image


def _tpu_flags(values, arguments):
    """Returns the flags of run_tpu.py for the TPU of its machine."""
    if values.kind != "tpu_job" or program_of(values) != "run_tpu.py":
        return []
    for argument in arguments:
        if re.match("--?tpu(_topology)?(=|$)", argument):
            raise UsageError(f"{argument} after -- is set by --tpu_topology before it. Remove it")
    return ["--tpu=local", f"--tpu_topology={values.tpu_topology}"]


def _roles(values):
    if values.kind not in CLUSTER_KINDS and not (values.kind == "vertex" and values.workers):
        if values.workers or values.ps:
            use = "Add --workers=N" if values.kind == "vertex" else "Use --kind=jobset"
            raise UsageError(
                f"--workers={values.workers} --ps={values.ps}: --kind={values.kind} has one "
                f"process. {use}"
            )
        return {}
    counts = (1, values.workers, values.ps, int(values.evaluator))
    return {role: count for role, count in zip(ROLES, counts) if count}


def _mapping(flag, texts, parse):
    """Returns the values of a repeated flag, which `parse` splits into a key and a value."""
    found = {}
    for text in texts:
        key, value = parse(text)
        if key in found:
            raise UsageError(f"--{flag}={text}: another --{flag} sets {key}. Remove one of them")
        found[key] = value
    return found


def _label(text):
    key, equals, value = text.partition("=")
    if not (equals and _LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
        raise UsageError(f"--node_selector={text} is invalid: it must be KEY=VALUE of a node label")
    return key, value


def _toleration(text):
    found = _TOLERATION.fullmatch(text)
    if (
        not found
        or not _LABEL_KEY.fullmatch(found[1])
        or not _LABEL_VALUE.fullmatch(found[2] or "")
    ):
        raise UsageError(
            f"--toleration={text} is invalid: it must be KEY=VALUE:EFFECT or KEY:EFFECT, with the "
            "effect NoSchedule, PreferNoSchedule or NoExecute"
        )
    key, value, effect = found.groups()
    operator = {"operator": "Exists"} if value is None else {"operator": "Equal", "value": value}
    return {"key": key, **operator, "effect": effect}


def _volume(text):
    claim, _, path = text.partition(":")
    is_path = path.startswith("/") and path == posixpath.normpath(path) and ":" not in path
    if not (SUBDOMAIN.fullmatch(claim) and is_path) or path in ("/", "/tmp", "/app"):
        raise UsageError(
            f"--volume={text} is invalid: it must be CLAIM:/PATH, with the name of a "
            "PersistentVolumeClaim and a folder other than /, /tmp and /app"
        )
    return path, claim


def _env(text):
    name, equals, value = text.partition("=")
    if not (equals and _ENV.fullmatch(name)):
        raise UsageError(f"--env={text} is invalid: it must be NAME=VALUE")
    if name in _RESERVED_ENV:
        raise UsageError(f"--env={text}: {name} is set by the manifest. Remove it")
    return name, value
