r"""Kills the programs at each system call that changes a file: `make kill-matrix`.

    python -m tools.kill_matrix [--commands=train,prepare] [--points=20] [--seed=0]
    python -m tools.kill_matrix --only=train:17

A point is a call that creates, writes, renames, syncs or removes a file in the folders of the run;
SIGKILL is sent before the call. The same command, run again, must end like an uninterrupted run:
status 0, equal files except for times, and no leftovers. Points that leave equal files share one
second run.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import multiprocessing
import os
import pathlib
import random
import sys
import tempfile
from concurrent import futures

from engine.cli import startup

if __name__ == "__main__":
    startup.check(startup.check_environment)

from tools.killing import seccomp
from tools.killing.runner import COMMANDS, Runner, leftovers


def choose(calls: list[str], count: int, seed: int) -> list[int]:
    """Returns the indices of `count` calls (0: all), of each kind and spread over the run."""
    if not count or count >= len(calls):
        return list(range(len(calls)))
    kinds = collections.defaultdict(list)
    for number, call in enumerate(calls):
        kinds[call.split()[0]].append(number)
    rng = random.Random(seed)
    for numbers in kinds.values():
        # The first and the last call of a kind, then random ones.
        ends = [numbers.pop(0), *numbers[-1:]]
        del numbers[-1:]
        rng.shuffle(numbers)
        numbers[:0] = dict.fromkeys(ends)
    chosen = []
    while len(chosen) < count:
        for numbers in kinds.values():
            if numbers and len(chosen) < count:
                chosen.append(numbers.pop(0))
    return sorted(chosen)


def _make_runner(folder):
    global _runner
    _runner = Runner(folder / f"worker-{os.getpid()}")


def _call(method, *arguments):
    """Calls a method of this process's `Runner`."""
    return getattr(_runner, method)(*arguments)


def _kill(name, start, point, volatile, expected, states):
    """Kills a command at a point, and runs it again if it left files that no other point did.

    Returns:
      The `Killed`; None, or the problems of the second run.
    """
    killed = _runner.kill(name, start, point, volatile)
    is_new = states.setdefault(killed.state, point) == point
    return killed, _runner.run_again(name, expected, volatile) if is_new else None


@dataclasses.dataclass
class Row:
    """Results of one kind of call of one command."""

    points: int = 0
    states: int = 0
    failures: int = 0


def examine(pool, name: str, folder: pathlib.Path, points: list[int] | None, states, options):
    """Kills a command at its points; returns `{kind of call: Row}` and [(point, problem)].

    Args:
      pool: executor whose processes have a `Runner`.
      name: of the command.
      folder: for its files.
      points: numbers of the calls; None: choose them by the options.
      states: `{digest of files: point}` that all processes share.
      options: parsed command line.
    """
    start = folder / f"start-{name}"
    pool.submit(_call, "prepare", name, start).result()
    calls, expected = pool.submit(_call, "run_uninterrupted", name, start).result()
    _, other = pool.submit(_call, "run_uninterrupted", name, start).result()
    volatile = {path for path in expected if expected[path] != other.get(path)}
    lines = [(f"{name}:0 uninterrupted", line) for line in leftovers(expected)]
    if points is None:
        points = choose(calls, options.points, options.seed)
    print(f"{name}: {len(points)} of {len(calls)} calls; volatile: {sorted(volatile)}", flush=True)
    rows = collections.defaultdict(Row)
    done = {
        pool.submit(_kill, name, start, point, volatile, expected, states): point
        for point in points
    }
    for future in futures.as_completed(done):
        killed, problems = future.result()
        row = rows[killed.call.split()[0] if killed.call else "(ended before)"]
        row.points += 1
        row.states += problems is not None
        if problems:
            row.failures += 1
            place = f"{name}:{done[future]} before {killed.call}"
            lines.append((place, "; ".join(problems)[:600]))
            print(f"FAILURE {': '.join(lines[-1])}", flush=True)
    return rows, lines


def main() -> None:
    """Prints a table of commands and calls; ends with status 1 if a second run went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", default=",".join(COMMANDS), help="which of them")
    parser.add_argument("--points", type=int, default=20, help="of each command; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of points")
    parser.add_argument("--workers", type=int, default=2, help="processes at once")
    parser.add_argument("--only", default="", help="COMMAND:POINT, to try one again")
    options = parser.parse_args()
    name, _, point = options.only.partition(":")
    names = [name] if name else options.commands.split(",")
    unknown = [name for name in names if name not in COMMANDS]
    if unknown:
        parser.error(f"unknown command '{unknown[0]}'; valid: {', '.join(COMMANDS)}")
    try:
        seccomp.check_supported()
    except seccomp.UnsupportedError as error:
        sys.exit(f"kill_matrix: error: {error}")
    _import_all()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary).resolve()
        points = [int(point)] if point else None
        # TensorFlow is imported, but must not have run before the forks.
        context = multiprocessing.get_context("fork")
        settings = options.workers, context, _make_runner, (folder,)
        with context.Manager() as manager, futures.ProcessPoolExecutor(*settings) as pool:
            found = {
                name: examine(pool, name, folder, points, manager.dict(), options) for name in names
            }
    sys.exit(_report(found))


def _import_all():
    """Imports what the commands run, once; no session may run in this process."""
    from engine.cli import cpu_kernels

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    cpu_kernels.prefer_onednn()
    import prepare_data  # noqa: F401 - imported for the forked processes
    import run_cpu  # noqa: F401


def _report(found):
    print(f"\n{'command':15} {'system call':16} {'points':>7} {'states':>7} {'failures':>9}")
    for name, (rows, _) in found.items():
        for call, row in sorted(rows.items()):
            print(f"{name:15} {call:16} {row.points:7d} {row.states:7d} {row.failures:9d}")
    total = [
        sum(getattr(row, key) for rows, _ in found.values() for row in rows.values())
        for key in ("points", "states", "failures")
    ]
    print(f"{'all':15} {'':16} {total[0]:7d} {total[1]:7d} {total[2]:9d}")
    failures = collections.defaultdict(list)
    for _, lines in found.values():
        for place, problem in lines:
            failures[problem].append(place)
    for problem, places in failures.items():
        print(f"\n{len(places)} x {problem}\n  " + "\n  ".join(places[:5]))
        print(f"  python -m tools.kill_matrix --only={places[0].split()[0]}")
    return bool(failures)


if __name__ == "__main__":
    main()
