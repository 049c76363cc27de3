"""The fuzzer: some cases of each kind, regressions, and detection of faults."""

import faulthandler
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tools.fuzzing import case as cases
from tools.fuzzing import mutations, records, stored, targets, worker

ROOT = pathlib.Path(__file__).parents[2]
CASES = 1
MORE_CASES = {"image_folder": 20, "input": 40, "process": 2}  # others: 100
SLOW = {"input", "serving", "process"}  # their files take seconds to write
# Stored cases that take seconds, by their place; others of their kinds run the same code.
SLOW_CASES = {"image_folder": {1, 2}, "results": {8}, "shard": {3}}


@pytest.fixture(scope="session")
def base_of(tmp_path_factory):
    """Returns the folder with a target's valid files, written once."""
    folders = {}

    def find(target):
        name = getattr(target, "files", target.name)
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(f"base_{name}")
            target.prepare(folders[name])
        return folders[name]

    return find


@pytest.fixture
def run_case(base_of, tmp_path):
    """Runs a case in this process; returns its outcome."""

    def run(kind, seed, replayed=None):
        target = targets.BY_NAME[kind]
        return worker.run_here(target, seed, base_of(target), tmp_path / "scratch", replayed)

    return run


def marked(kind, *values):
    """Returns pytest parameters, marked as slow for some kinds."""
    is_slow = kind in SLOW or SLOW_CASES.get(kind, set()) & set(values)
    return pytest.param(kind, *values, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize("kind", map(marked, targets.BY_NAME))
def test_some_cases_of_each_kind(kind, run_case):
    outcomes = [run_case(kind, seed) for seed in range(1000, 1000 + CASES)]
    assert [outcome for outcome in outcomes if outcome.result == "fault"] == []


@pytest.mark.parametrize(
    ("kind", "place"),
    [marked(kind, i) for kind in targets.BY_NAME for i, _ in enumerate(stored.read(kind))],
)
def test_stored_cases_that_found_faults(kind, place, run_case):
    outcome = run_case(kind, 0, stored.read(kind)[place])
    assert outcome.result != "fault", outcome.detail


def test_a_case_is_stored_and_replayed(base_of, tmp_path):
    target = targets.BY_NAME["idx"]
    base = base_of(target)
    kept = worker.run_here(target, 7, base, tmp_path / "scratch", keeps=True).case
    text = json.dumps(kept)
    assert str(tmp_path) not in text
    again = cases.make("idx", 0, base, tmp_path / "again", json.loads(text), keeps=True)
    again.copy_base("source")
    plan = again.complete({})
    assert plan["arguments"][0] == "--dataset=mnist"
    assert stored.dump(again, plan) == kept


@pytest.mark.slow(cost=10)
@pytest.mark.parametrize("kind", targets.BY_NAME)
def test_more_cases_of_each_kind(kind):
    # In a child process: TensorFlow cannot run in a fork of this process, which has run it. The
    # number of cases is fixed: a machine that is faster does not run other cases.
    flags = (f"--kinds={kind}", f"--cases={MORE_CASES.get(kind, 100)}", "--seed=100000")
    command = [sys.executable, "-m", "tools.fuzz", *flags, "--minutes=60"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_kind_and_seed_determine_a_case(base_of, tmp_path):
    base = base_of(targets.BY_NAME["idx"])

    def mutated(kind, seed):
        case = cases.make(kind, seed, base, tmp_path)
        return mutations.mutate_bytes(case.random, bytes(range(200)), [b"token"], b"other" * 20)

    assert mutated("idx", 7) == mutated("idx", 7)
    assert mutated("idx", 7) != mutated("idx", 8)


def test_frame_equals_tensorflow(data_dir):
    shard = next(pathlib.Path(data_dir).glob("train-*.tfrecord")).read_bytes()
    assert b"".join(map(records.frame, records.split(shard))) == shard


class Target:
    """A fake target."""

    name = "fake"

    def __init__(self, run):
        self.run = run
        self.time_limit = 0.5 if run is hang else 30.0

    def prepare(self, base):
        """Writes nothing."""


def hang(case):
    time.sleep(60)


def write_outside(case):
    (case.root / "outside" / "canary.txt").write_text("changed")
    return cases.ACCEPTED


def die(case):
    faulthandler.disable()
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "signature"),
    [
        (die, "fake: the process ends with SIGSEGV"),
        (hang, "fake: hang"),
        (lambda case: b"x" * (worker.MEMORY_LIMIT + 2**20), "fake: memory above the limit"),
        (write_outside, "files outside of the given folders"),
        (lambda case: (case.work / "cwd" / "x").mkdir(), "files in the working directory"),
        (lambda case: cases.ACCEPTED, ""),
    ],
)
def test_worker_detects_faults(run, signature, tmp_path):
    child = worker.Worker(Target(run), tmp_path)
    try:
        assert child.run(1).signature == signature
    finally:
        child.stop()


@pytest.mark.parametrize(
    ("status", "err", "signature"),
    [
        (0, "", None),
        (2, "p.py: error: the file is broken\n", None),
        (2, "p.py: error: flag --a=x: wrong\nflag --b=y: wrong\n", "several error lines of p.py"),
        (2, "p.py: error: one\nTwo\n", "several error lines of p.py"),
        (1, "", "no error line of p.py"),
        (3, "p.py: error: x\n", "status 3 of p.py"),
        (-11, "", "status -11 of p.py"),
        (2, "p.py: error: \x1b[31mred\n", "control characters in the error line of p.py"),
        (
            1,
            "Traceback (most recent call last):\nKeyError: 'x'\n",
            "traceback of p.py: KeyError: 'x'",
        ),
    ],
)
def test_judge(status, err, signature):
    done = subprocess.CompletedProcess([], status, "", err)
    if signature is None:
        assert cases.judge(done, "p.py") == (cases.REFUSED if status else cases.ACCEPTED)
        return
    with pytest.raises(cases.FaultError) as fault:
        cases.judge(done, "p.py")
    assert fault.value.signature == signature
