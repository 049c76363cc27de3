"""Fuzzes the programs with mutated files, flags and requests: `make fuzz`.

    python -m tools.fuzz [--minutes=60] [--kinds=idx,cifar] [--seed=0]
        [--case=KIND:SEED [--store]]

Two outcomes are valid: success with correct output, or one error line and status 1 or 2 with no
file changed. A traceback, a signal, a hang, memory above 1 GiB or a change outside of the given
folders is a fault. Kind and seed determine a case; --case runs one case, and --store keeps what it
gives the program for the tests: the generator may change.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import sys
import tempfile
import time

from engine.cli import startup

if __name__ == "__main__":
    startup.check(startup.check_environment)

from tools.fuzzing import stored, targets
from tools.fuzzing.worker import Worker

# Time per kind before the next kind.
_TURN_SECONDS = 20.0


def main() -> None:
    """Runs the fuzzer; exits with status 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="total duration")
    parser.add_argument("--kinds", default="", help=f"default: {','.join(targets.BY_NAME)}")
    parser.add_argument("--cases", type=int, default=0, help="maximum per kind; 0: no limit")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case")
    parser.add_argument("--case", default="", help="run the single case KIND:SEED")
    parser.add_argument("--store", action="store_true", help="add --case to the cases of the tests")
    parser.add_argument("--folder", default="", help="for all files; default: temporary")
    arguments = parser.parse_args()
    kinds = [arguments.case.partition(":")[0]] if arguments.case else arguments.kinds.split(",")
    unknown = [name for name in kinds if name and name not in targets.BY_NAME]
    if unknown:
        parser.error(f"unknown kind '{unknown[0]}'; valid: {', '.join(targets.BY_NAME)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(arguments.folder or temporary).absolute()
        chosen = [targets.BY_NAME[name] for name in kinds if name] or list(targets.BY_NAME.values())
        targets.import_all()
        if arguments.case:
            seed = int(arguments.case.partition(":")[2])
            sys.exit(_replay(chosen[0], seed, folder, arguments.store))
        sys.exit(_fuzz(chosen, folder, arguments))


def _replay(target, seed, folder, store):
    worker = Worker(target, folder, keeps=store)
    outcome = worker.run(seed)
    worker.stop()
    print(f"{target.name}:{seed} {outcome.result} after {outcome.seconds:.2f} s")
    if outcome.detail or outcome.signature:
        print(outcome.detail or outcome.signature)
    if store and outcome.case:
        stored.append(target.name, outcome.case)
    return outcome.result == "fault"


def _fuzz(chosen, folder, arguments):
    """Runs the kinds in turn until the time is up; returns the exit status."""
    end = time.monotonic() + 60 * arguments.minutes
    turn = min(_TURN_SECONDS, 60 * arguments.minutes / len(chosen))
    counts = {target.name: collections.Counter() for target in chosen}
    faults: dict[str, list] = {}
    workers = {target.name: Worker(target, folder) for target in chosen}
    waiting = collections.deque(chosen)
    while waiting and time.monotonic() < end:
        target = waiting.popleft()
        count = counts[target.name]
        turn_end = min(end, time.monotonic() + turn)
        while time.monotonic() < turn_end and (
            not arguments.cases or sum(count.values()) < arguments.cases
        ):
            outcome = workers[target.name].run(arguments.seed + sum(count.values()))
            count[outcome.result] += 1
            if outcome.result == "fault":
                _add(faults, outcome)
        workers[target.name].stop()
        if not arguments.cases or sum(count.values()) < arguments.cases:
            waiting.append(target)
        print(f"{target.name}: {_describe(count)}", flush=True)
    _report(counts, faults)
    return bool(faults)


def _add(faults, outcome):
    is_known = outcome.signature in faults
    faults.setdefault(outcome.signature, []).append(outcome)
    if not is_known:
        print(f"FAULT {outcome.kind}:{outcome.seed} {outcome.detail or outcome.signature}")


def _describe(count):
    return f"{sum(count.values())} cases, " + ", ".join(
        f"{count[name]} {name}" for name in ("accepted", "refused", "fault")
    )


def _report(counts, faults):
    print(f"\n{'kind':14} {'cases':>8} {'accepted':>9} {'refused':>8} {'faults':>7}")
    for name, count in counts.items():
        found = [count[result] for result in ("accepted", "refused", "fault")]
        print(f"{name:14} {sum(found):8,d} {found[0]:9,d} {found[1]:8,d} {found[2]:7,d}")
    for signature, outcomes in sorted(faults.items(), key=lambda item: -len(item[1])):
        first = ", ".join(f"{outcome.kind}:{outcome.seed}" for outcome in outcomes[:3])
        print(f"\n{len(outcomes)} x {signature}\n  {first}\n  {outcomes[0].detail[:600]}")


if __name__ == "__main__":
    main()
