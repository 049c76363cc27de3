"""A training that dies is restarted from its newest checkpoint."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from engine.cli import supervisor

# A fake training: counts its runs, saves a checkpoint if `saves`, and exits with `ends`.
TRAINING = """
import os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
runs = len(list(folder.glob("run-*")))
(folder / f"run-{runs}").touch()
saves, ends = eval(sys.argv[2]), eval(sys.argv[3])
if saves[runs]:
    (folder / f"model.ckpt-{10 * (runs + 1)}.index").touch()
if ends[runs] < 0:
    os.kill(os.getpid(), -ends[runs])
sys.exit(ends[runs])
"""


@pytest.fixture
def supervise(tmp_path):
    """Supervises fake trainings; returns the status, the number of runs and the waits."""

    def run(saves, ends, max_restarts=9):
        waits = []
        command = [sys.executable, "-c", TRAINING, str(tmp_path), str(saves), str(ends)]
        status = supervisor.supervise(command, str(tmp_path), max_restarts, waits.append)
        return status, len(list(tmp_path.glob("run-*"))), waits

    return run


def test_a_killed_training_is_restarted(supervise):
    ends = [-signal.SIGKILL, 1, -signal.SIGSEGV, 0]
    assert supervise([True] * 4, ends) == (0, 4, [1, 1, 1])


@pytest.mark.parametrize("status", [0, 2, 129, 130, 141, 143])
def test_a_handled_end_is_not_restarted(supervise, status):
    assert supervise([True], [status]) == (status, 1, [])


def test_without_progress_waits_grow_and_restarts_end(supervise):
    assert supervise([False] * 9, [1] * 9) == (1, 3, [2, 4])


def test_progress_resets_the_waits(supervise):
    saves = [False, False, True, False, False, False]
    assert supervise(saves, [1] * 6) == (1, 6, [2, 4, 1, 2, 4])


def test_max_restarts(supervise, capfd):
    assert supervise([True] * 9, [-signal.SIGKILL] * 9, max_restarts=2) == (137, 3, [1, 1])
    assert "Not restarted: limit of --max_restarts=2" in capfd.readouterr().out


def test_restarts_get_additional_flags(tmp_path):
    code = "import pathlib, sys; pathlib.Path(sys.argv[1], f'{len(sys.argv)}').touch(); sys.exit(1)"
    command = [sys.executable, "-c", code, str(tmp_path)]
    supervisor.supervise(command, str(tmp_path), 1, lambda seconds: None, ["--a", "--b"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "4"]


def catches(pid, number):
    """Whether a process has a handler for a signal (proc(5), SigCgt)."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    (mask,) = re.findall(r"(?m)^SigCgt:\s*(\w+)", status)
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_signals_are_forwarded(tmp_path):
    code = "import sys, time\nprint('ready', flush=True)\ntime.sleep(60)"
    parent = (
        "import sys; from engine.cli import supervisor\n"
        f"sys.exit(supervisor.supervise([sys.executable, '-c', {code!r}], {str(tmp_path)!r}, 3))"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    while not catches(process.pid, signal.SIGTERM):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait() == 143
    process.stdout.close()


@pytest.mark.slow
def test_a_killed_run_is_resumed_to_its_end(command, run_in, variables, tmp_path):
    arguments = ["--mode=train", "--train_steps=1500", "--save_checkpoints_steps=20"]
    process = subprocess.Popen(command("run_cpu.py", *arguments, "--max_restarts=2"))
    while not (tmp_path / "model" / "checkpoint").exists():
        assert process.poll() is None
        time.sleep(0.01)
    subprocess.run(["pkill", "-KILL", "-P", str(process.pid)], check=True)
    assert process.wait() == 0
    assert variables(tmp_path / "model")["global_step"] == 1500


def test_a_training_exits_if_its_supervisor_is_killed(tmp_path):
    """Otherwise a second training would start beside it."""
    code = "import time\nprint('ready', flush=True)\ntime.sleep(600)"
    parent = (
        "import sys; from engine.cli import supervisor\n"
        f"supervisor.supervise([sys.executable, '-c', {code!r}], {str(tmp_path)!r}, 3)"
    )
    command = [sys.executable, "-c", parent]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.kill()
        # The training holds the other end of the pipe as long as it lives.
        assert process.stdout.read() == ""
