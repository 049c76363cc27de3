"""Runs cases in a forked child, with a limit of time and of memory; names what kills it."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import pathlib
import resource
import shutil
import signal
import sys
import time

from tools.fuzzing import case as cases

# Seconds of a case, unless its target has a `time_limit`; most take some milliseconds.
_TIME_LIMIT = 20.0
# Peak resident bytes that a case may add: the files are of some kilobytes.
MEMORY_LIMIT = 2**30
# Above what the child has mapped, so that a runaway allocation fails and not the machine.
_ADDRESS_SPACE = 6 * 2**30
# What TensorFlow keeps grows slowly: a child lives for so many cases.
_LIFETIME = 2000


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
      kind, seed: of the case.
      result: "accepted", "refused" or "fault".
      signature: of a fault, the same for faults of one cause.
      detail: of a fault, for people.
      seconds: that it took.
    """

    kind: str
    seed: int
    result: str
    signature: str = ""
    detail: str = ""
    seconds: float = 0.0


def run_here(target, seed: int, base: pathlib.Path, scratch: pathlib.Path) -> Outcome:
    """Runs a case in this process: a crash, a hang and a lack of memory end it."""
    start = time.monotonic()

    def outcome(*result):
        return Outcome(target.name, seed, *result, seconds=time.monotonic() - start)

    case = cases.make(target.name, seed, base, scratch)
    cwd = case.work / "cwd"
    cwd.mkdir()
    before = cases.tree(case.root, "a/b/work")
    folder = os.getcwd()
    os.chdir(cwd)
    _reset_peak()
    peak = _peak()
    try:
        result = target.run(case)
        found = os.listdir(cwd)
        allowed = not found or getattr(target, "relative_paths", False)
        cases.require(allowed, "files in the working directory", str(found))
        changed = cases.changes(before, cases.tree(case.root, "a/b/work"))
        cases.require(not changed, "files outside of the given folders", "; ".join(changed))
        grown = _peak() - peak
        detail = f"{grown / 2**20:.0f} MiB"
        cases.require(grown < MEMORY_LIMIT, f"{target.name}: memory above the bound", detail)
    except cases.FaultError as fault:
        return outcome("fault", fault.signature, str(fault))
    except MemoryError as error:
        return outcome("fault", f"{target.name}: MemoryError", str(error))
    except Exception as error:  # of the fuzzer, or of an oracle
        signature = f"{target.name}: the check fails, {cases.signature(error)}"
        return outcome("fault", signature, f"{signature}: {error}")
    finally:
        os.chdir(folder)
    return outcome(result)


def _reset_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _peak():
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _mapped():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _child(target, base, scratch, connection):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not base.exists():
        partial = base.with_name(f"{base.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        target.prepare(partial)
        partial.rename(base)
    # What TensorFlow prints by itself is no part of a case.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = _mapped() + _ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    connection.send("ready")
    while True:
        connection.send(run_here(target, connection.recv(), base, scratch))


class Worker:
    """A child process that runs cases of one target, and is replaced when one ends it.

    It is forked from a process that has imported TensorFlow and not yet run it.
    """

    def __init__(self, target, folder: pathlib.Path):
        """Takes a folder for the target's unmutated files and for the cases."""
        self._target = target
        self._base = folder / "base" / getattr(target, "files", target.name)
        self._scratch = folder / f"scratch-{target.name}"
        self._process = self._connection = None
        self._cases = 0

    def run(self, seed: int) -> Outcome:
        """Runs a case and returns its outcome, whatever happens to the child."""
        if self._process is None:
            self._start()
        start = time.monotonic()
        self._connection.send(seed)
        self._cases += 1
        try:
            limit = getattr(self._target, "time_limit", _TIME_LIMIT)
            if self._connection.poll(limit):
                outcome = self._connection.recv()
                if self._cases >= _LIFETIME:
                    self.stop()
                return outcome
            signature = f"{self._target.name}: hang"
            detail = f"no end after {limit:.0f} s"
            self.stop()
        except (EOFError, ConnectionResetError):
            self._process.join()
            code = self._process.exitcode
            name = signal.Signals(-code).name if code < 0 else f"status {code}"
            signature = f"{self._target.name}: the process ends with {name}"
            detail = ""
            self.stop()
        seconds = time.monotonic() - start
        return Outcome(self._target.name, seed, "fault", signature, detail, seconds)

    def stop(self) -> None:
        """Ends the child."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _start(self):
        context = multiprocessing.get_context("fork")
        self._connection, other = context.Pipe()
        arguments = (self._target, self._base, self._scratch, other)
        sys.stdout.flush()
        self._process = context.Process(target=_child, args=arguments, daemon=True)
        self._process.start()
        other.close()
        self._cases = 0
        try:
            self._connection.recv()
        except EOFError:
            self._process.join()
            sys.exit(f"the files of '{self._target.name}' cannot be made")
