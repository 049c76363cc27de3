"""Runs cases in a forked child process with limits of time and memory."""

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
from typing import Any

from tools.fuzzing import case as cases

# Seconds per case, unless its target has a `time_limit`; most take milliseconds.
_TIME_LIMIT = 20.0
# Peak resident bytes that a case may add; its files have kilobytes.
MEMORY_LIMIT = 2**30
# Additional address space of a child, so that a runaway allocation fails.
_ADDRESS_SPACE = 6 * 2**30
# Cases per child: TensorFlow's memory grows slowly.
_MAX_CASES = 2000


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Outcome of a case.

    Attributes:
      kind, seed: identify the case.
      result: "accepted", "refused" or "fault".
      signature: equal for faults that likely have the same cause.
      detail: description of a fault.
      seconds: duration.
      case: as `stored.dump` returns it, if it was to be kept.
    """

    kind: str
    seed: int
    result: str
    signature: str = ""
    detail: str = ""
    seconds: float = 0.0
    case: dict[str, Any] | None = None


def run_here(
    target, seed: int, base: pathlib.Path, scratch: pathlib.Path, replayed=None, keeps=False
) -> Outcome:
    """Runs a case in this process, which a crash ends; see `cases.Case`."""
    start = time.monotonic()
    case = cases.make(target.name, seed, base, scratch, replayed, keeps)

    def outcome(*result):
        seconds = time.monotonic() - start
        return Outcome(target.name, seed, *result, seconds=seconds, case=case.kept)

    cwd = case.work / "cwd"
    cwd.mkdir()
    folder = os.getcwd()
    os.chdir(cwd)
    _reset_peak()
    peak = _peak()
    try:
        with cases.require_unchanged(case.root, "files outside of the given folders", "a/b/work"):
            result = target.run(case)
            found = os.listdir(cwd)
            is_allowed = not found or getattr(target, "relative_paths", False)
            cases.require(is_allowed, "files in the working directory", str(found))
        growth = _peak() - peak
        detail = f"{growth / 2**20:.0f} MiB"
        cases.require(growth < MEMORY_LIMIT, f"{target.name}: memory above the limit", detail)
    except cases.FaultError as fault:
        return outcome("fault", fault.signature, str(fault))
    except MemoryError as error:
        return outcome("fault", f"{target.name}: MemoryError", str(error))
    except Exception as error:  # a bug of the fuzzer
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


def _child(target, base, scratch, keeps, connection):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not base.exists():
        partial = base.with_name(f"{base.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        target.prepare(partial)
        partial.rename(base)
    # Drops TensorFlow's log messages, which bypass sys.stderr.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = _mapped() + _ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    connection.send("ready")
    while True:
        connection.send(run_here(target, connection.recv(), base, scratch, keeps=keeps))


class Worker:
    """A child process that runs cases of one target, and is replaced after a crash.

    It must be forked from a process that has imported TensorFlow but not run it.
    """

    def __init__(self, target, folder: pathlib.Path, keeps: bool = False):
        """`folder` is for the target's valid files and for the cases; `keeps` as in `Case`."""
        self._target = target
        self._base = folder / "base" / getattr(target, "files", target.name)
        self._scratch = folder / f"scratch-{target.name}"
        self._process = self._connection = None
        self._cases = 0
        self._keeps = keeps

    def run(self, seed: int) -> Outcome:
        """Runs a case in the child process; a crash or hang is a fault."""
        if self._process is None:
            self._start()
        start = time.monotonic()
        self._connection.send(seed)
        self._cases += 1
        try:
            limit = getattr(self._target, "time_limit", _TIME_LIMIT)
            if self._connection.poll(limit):
                outcome = self._connection.recv()
                if self._cases >= _MAX_CASES:
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
        """Ends the child process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _start(self):
        context = multiprocessing.get_context("fork")
        self._connection, other = context.Pipe()
        arguments = (self._target, self._base, self._scratch, self._keeps, other)
        sys.stdout.flush()
        self._process = context.Process(target=_child, args=arguments, daemon=True)
        self._process.start()
        other.close()
        self._cases = 0
        try:
            self._connection.recv()
        except EOFError:
            self._process.join()
            sys.exit(f"cannot write the valid files of '{self._target.name}'")
