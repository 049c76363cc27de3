"""One case of the fuzzer: its folder, what ran in it, and what must not have happened."""

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

ACCEPTED, REFUSED = "accepted", "refused"
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_LONGEST_LINE = 30_000
_SPAWNED_SECONDS = 100


class FaultError(Exception):
    """An outcome that is not allowed.

    Attributes:
      signature: the same for faults of one cause, as far as that can be told.
    """

    def __init__(self, signature: str, detail: str = ""):
        super().__init__(f"{signature}: {detail}" if detail else signature)
        self.signature = signature


@dataclasses.dataclass
class Case:
    """What a target works with.

    Attributes:
      random: source of every choice.
      base: the target's unmutated files. Read only.
      root: folder of the case; whatever changes in it outside of `work` is a fault.
    """

    random: random.Random
    base: pathlib.Path
    root: pathlib.Path

    @property
    def work(self) -> pathlib.Path:
        """The folder that a target fills, three levels below `root`."""
        return self.root / "a" / "b" / "work"

    def copy_base(self, name: str) -> pathlib.Path:
        """Copies a folder of `base` into `work`."""
        target = self.work / name
        shutil.copytree(self.base / name, target, copy_function=shutil.copyfile)
        return target


def make(kind: str, seed: int, base: pathlib.Path, scratch: pathlib.Path) -> Case:
    """Returns a case with an empty folder in `scratch`, fully determined by kind and seed."""
    root = scratch / "case"
    shutil.rmtree(root, ignore_errors=True)
    case = Case(random.Random(f"{kind}:{seed}"), base, root)
    case.work.mkdir(parents=True)
    outside = root / "outside"
    outside.mkdir()
    (outside / "canary.txt").write_text("must not change")
    return case


def tree(folder: pathlib.Path, *without: str) -> dict[str, str]:
    """Returns `{path: what it is}` of all below a folder, with a digest of each file's content.

    Args:
      folder: where to look.
      without: folders, relative to `folder`, that are passed over.
    """
    found = {}
    skipped = {os.path.join(folder, name) for name in without}
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
    """Returns a line for each path that differs between two trees."""
    return [
        f"{'removed' if path not in after else 'new' if path not in before else 'changed'} {path!r}"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]


def require(condition: bool, signature: str, detail: str = "") -> None:
    """Raises a `FaultError` unless the condition holds."""
    if not condition:
        raise FaultError(signature, detail)


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
      status: its exit status.
      out, err: what it printed.
    """

    status: int
    out: str
    err: str


# Whether programs run in processes of their own, which takes seconds.
spawn = False


def run_program(argv: list[str], flags_modules: list[str], main: Callable[[], None]) -> Ended:
    """Parses `argv` and runs `main` in this process as the command line does.

    Where `spawn` is true, runs the whole program `argv[0]` in its own process instead.

    Raises:
      FaultError: an exception reaches the top, which would be a traceback.
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
    return Ended(status, out.getvalue(), err.getvalue())


def _run_process(argv):
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
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
    return Ended(done.returncode, done.stdout, done.stderr)


def judge(ended: Ended, program: str, many_lines: bool = False) -> str:
    """Returns whether a program accepted or refused its input.

    Args:
      ended: the program's end.
      program: its name, as in "run_cpu.py".
      many_lines: whether an error may be a list.

    Raises:
      FaultError: the end is neither success nor one error line with status 1 or 2.
    """
    if "Traceback" in ended.err:
        last = _without_paths(ended.err.splitlines()[-1])
        raise FaultError(f"traceback of {program}: {last[:120]}", ended.err[-1500:])
    if ended.status == 0:
        return ACCEPTED
    require(ended.status in (1, 2), f"status {ended.status!r} of {program}", ended.err[-500:])
    text = ended.err.removesuffix("\n")
    detail = f"status {ended.status}: {ended.err[:500]!r}"
    require(text.startswith(f"{program}: error: "), f"no error line of {program}", detail)
    require(many_lines or "\n" not in text, f"several error lines of {program}", detail)
    plain = text.replace("\n", "").isprintable()
    require(plain, f"control characters in the error line of {program}", detail)
    require(len(text) <= _LONGEST_LINE, f"an endless error line of {program}", detail)
    return REFUSED


def signature(error: BaseException) -> str:
    """Returns the type of an exception and the last line of this package that it went through."""
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
