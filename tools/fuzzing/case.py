"""A fuzz case: its folder, running a program on it, and judging the outcome."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import io
import os
import pathlib
import random
import shutil
import signal
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

from tools.fuzzing import stored

ACCEPTED, REFUSED = "accepted", "refused"
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_LONGEST_LINE = 30_000
_SPAWNED_SECONDS = 100


class FaultError(Exception):
    """An invalid outcome of a case.

    Attributes:
      signature: equal for faults that likely have the same cause.
    """

    def __init__(self, signature: str, detail: str = ""):
        super().__init__(f"{signature}: {detail}" if detail else signature)
        self.signature = signature


@dataclasses.dataclass
class Case:
    """Input of a target.

    Attributes:
      random: source of all random choices.
      base: folder of the target's valid files. Read only.
      root: folder of the case; changes outside of `work` are a fault.
      replayed: the stored case to run instead of a random one, see `stored.dump`.
      keeps: True to store the case in `kept`.
      copied: `{folder in work: the folder in base that it was copied from}`.
      kept: the case, once it is complete.
    """

    random: random.Random
    base: pathlib.Path
    root: pathlib.Path
    replayed: dict[str, Any] | None = None
    keeps: bool = False
    copied: dict[str, str] = dataclasses.field(default_factory=dict)
    kept: dict[str, Any] | None = None

    @property
    def work(self) -> pathlib.Path:
        """The folder that a target may change, three levels below `root`."""
        return self.root / "a" / "b" / "work"

    def copy_base(self, name: str, target: str = "") -> pathlib.Path:
        """Copies a folder of `base` into `work`, under its name or another."""
        target = target or name
        shutil.copytree(self.base / name, self.work / target, copy_function=shutil.copyfile)
        self.copied[target] = name
        return self.work / target

    def complete(self, plan: dict[str, Any]) -> dict[str, Any]:
        """Ends the random part of a case: `work` and the plan are all that a program gets.

        A stored case replaces both.

        Args:
          plan: JSON of how to run the program.

        Returns:
          The plan to follow.
        """
        if self.replayed is not None:
            return stored.load(self, self.replayed)
        if self.keeps:
            self.kept = stored.dump(self, plan)
        return plan


def make(
    kind: str, seed: int, base: pathlib.Path, scratch: pathlib.Path, replayed=None, keeps=False
) -> Case:
    """Returns a case with an empty folder in `scratch`, determined by kind and seed, or stored."""
    root = scratch / "case"
    shutil.rmtree(root, ignore_errors=True)
    case = Case(random.Random(f"{kind}:{seed}"), base, root, replayed, keeps)
    case.work.mkdir(parents=True)
    outside = root / "outside"
    outside.mkdir()
    (outside / "canary.txt").write_text("must not change")
    return case


def snapshot(folder: pathlib.Path, *excluded: str) -> dict[str, str]:
    """Returns `{path: digest of a file, target of a link or type}` of everything in a folder.

    Args:
      folder: the folder.
      excluded: folders to skip, relative to `folder`.
    """
    found = {}
    skipped = {os.path.join(folder, name) for name in excluded}
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if os.path.join(path, name) not in skipped]
        for name in (*folders, *names):
            whole = os.path.join(path, name)
            found[os.path.relpath(whole, folder)] = _describe(whole)
    return found


def _describe(path):
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return f"link to {os.readlink(path)}"
    if stat.S_ISREG(mode):
        with open(path, "rb") as file:
            return hashlib.sha1(file.read()).hexdigest()
    return f"type {stat.S_IFMT(mode):o}"


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Returns a line for each path that differs between two snapshots."""
    return [
        f"{'removed' if path not in after else 'new' if path not in before else 'changed'} {path!r}"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]


def require(condition: bool, signature: str, detail: str = "") -> None:
    """Raises a `FaultError` unless the condition holds."""
    if not condition:
        raise FaultError(signature, detail)


@contextlib.contextmanager
def require_unchanged(folder: pathlib.Path, signature: str, *excluded: str):
    """Raises a `FaultError` if files of a folder change in the with block; see `snapshot`."""
    before = snapshot(folder, *excluded)
    yield
    changed = changes(before, snapshot(folder, *excluded))
    require(not changed, signature, "; ".join(changed)[:300])


# True to run programs in child processes, which takes seconds each.
spawn = False


def run_program(
    argv: list[str], flags_modules: list[str], main: Callable[[], None]
) -> CompletedProcess:
    """Parses `argv` and runs `main` in this process like the command line.

    If `spawn` is true, runs the program `argv[0]` in a child process instead.

    Raises:
      FaultError: an uncaught exception.
    """
    if spawn:
        return _run_process(argv)
    import tensorflow as tf

    from engine.cli import startup
    from tpu.connect.request import TPUError

    def run():
        startup.start(argv, "", *flags_modules)
        with tf.Graph().as_default():
            startup.run(main, TPUError)

    for name in flags_modules:
        importlib.import_module(name).FLAGS.unparse_flags()
    out, err = io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    argv_before, folder, environment = sys.argv, os.getcwd(), dict(os.environ)
    sys.argv = argv
    status = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run()
    except SystemExit as end:
        status = end.code or 0
    except (KeyboardInterrupt, FaultError):
        raise
    except BaseException as error:
        raise FaultError(signature(error), _tail(error)) from error
    finally:
        sys.argv = argv_before
        os.chdir(folder)
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for name in flags_modules:
            sys.modules[name].FLAGS.unparse_flags()
    return CompletedProcess(argv, status, out.getvalue(), err.getvalue())


def _run_process(argv):
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(
            [sys.executable, str(_ROOT / argv[0]), *argv[1:]],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SPAWNED_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FaultError(f"hang of {argv[0]}") from error


def judge(done: CompletedProcess, program: str, many_lines: bool = False) -> str:
    """Returns whether a program `ACCEPTED` or `REFUSED` its input.

    Args:
      done: the completed program.
      program: its name, as in "run_cpu.py".
      many_lines: True if an error message may have several lines.

    Raises:
      FaultError: neither success nor one error line with status 1 or 2.
    """
    if "Traceback" in done.stderr:
        last = _without_paths(done.stderr.splitlines()[-1])
        raise FaultError(f"traceback of {program}: {last[:120]}", done.stderr[-1500:])
    if done.returncode == 0:
        return ACCEPTED
    require(
        done.returncode in (1, 2), f"status {done.returncode!r} of {program}", done.stderr[-500:]
    )
    text = done.stderr.removesuffix("\n")
    detail = f"status {done.returncode}: {done.stderr[:500]!r}"
    require(text.startswith(f"{program}: error: "), f"no error line of {program}", detail)
    require(many_lines or "\n" not in text, f"several error lines of {program}", detail)
    plain = text.replace("\n", "").isprintable()
    require(plain, f"control characters in the error line of {program}", detail)
    require(len(text) <= _LONGEST_LINE, f"an endless error line of {program}", detail)
    return REFUSED


def signature(error: BaseException) -> str:
    """Returns the type of an exception and the last function of this package in its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(str(_ROOT))]
    ours = [frame for frame in ours if "/.venv/" not in frame.filename]
    last = (ours or frames)[-1]
    name = os.path.relpath(last.filename, _ROOT)
    return f"{type(error).__name__} at {name}:{last.name}"


def _tail(error):
    text = " ".join(str(error).split())
    return f"{text[:300]} ..." if len(text) > 300 else text


def _without_paths(line):
    return " ".join(word for word in line.split() if "/" not in word)
