"""Signals and a closed pipe: a training finishes its step, saves, and ends with a status."""

import os
import pathlib
import signal
import subprocess
import time

import numpy as np
import pytest

from engine.cli import standard_streams, supervisor
from engine.hooks import preemption as interruption_module
from engine.hooks.preemption import Interruption
from tests.marks import slow

ROOT = pathlib.Path(__file__).parents[1]
MODE = "--mode=train"
SAVED = 50
# It ends after a minute even if it ignores the signal.
FOR_LONG = ["--train_steps=10000", f"--save_checkpoints_steps={SAVED}"]
TPU = ("--tpu=emulator", "--tpu_topology=1x2", "--train_batch_size=14")


@pytest.fixture
def interrupted(command, tmp_path):
    """Interrupts a training after its first checkpoint; returns its status and output."""

    def run(program, number, *arguments):
        process = subprocess.Popen(
            command(program, MODE, *FOR_LONG, *arguments),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            while supervisor.newest_step(str(tmp_path / "model")) < SAVED:
                if process.poll() is not None:
                    pytest.fail("it ended before it trained")
                time.sleep(0.05)
            process.send_signal(number)
            said, _ = process.communicate()
        finally:
            process.kill()
        return process.returncode, said

    return run


@pytest.mark.parametrize(
    ("program", "number", "status", "arguments"),
    [
        slow("run_cpu.py", signal.SIGINT, 130, ()),
        slow("run_cpu.py", signal.SIGTERM, 143, ()),
        ("run_tpu.py", signal.SIGTERM, 143, TPU),
    ],
)
def test_a_training_that_is_told_to_end_saves_first(
    interrupted, variables, tmp_path, program, number, status, arguments
):
    returned, said = interrupted(program, number, *arguments)
    assert returned == status
    assert f"stopped by {number.name}" in said
    step = int(variables(tmp_path / "model")["global_step"])
    assert step >= SAVED
    assert (tmp_path / "model" / f"result_{step}.json").exists()


def test_it_goes_on_to_where_an_undisturbed_one_ends(interrupted, run_in, variables, tmp_path):
    interrupted("run_cpu.py", signal.SIGTERM)
    end = variables(tmp_path / "model")["global_step"] + 30
    for folder in ("model", "once"):
        run_in(tmp_path / folder, MODE, f"--train_steps={end}")
    resumed, once = (variables(tmp_path / folder) for folder in ("model", "once"))
    for name, value in once.items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)


@pytest.fixture
def interruption():
    """An Interruption that awaits signals."""
    interruption = Interruption()
    with interruption.awaited():
        yield interruption


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_signal_is_noted_while_a_step_is_under_way(interruption, capsys, number, status):
    interruption.finishes_step = True
    os.kill(os.getpid(), number)
    assert interruption.signal == number
    assert "once more ends at once" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        interruption.exit_if_asked()
    assert ended.value.code == status


def test_a_pipe_whose_reader_is_gone_is_noted_like_a_signal(interruption):
    interruption.finishes_step = True
    standard_streams.on_closed_pipe()
    with pytest.raises(SystemExit) as ended:
        interruption.exit_if_asked()
    assert ended.value.code == 141


def test_a_signal_that_is_ignored_stays_ignored():
    """As of nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interruption = Interruption()
    with interruption.awaited():
        os.kill(os.getpid(), signal.SIGHUP)
        interruption.let_the_next_one_kill()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    signal.signal(signal.SIGHUP, before)
    assert interruption.signal is None


@pytest.mark.parametrize(("seconds", "ends"), [(0.2, False), (2.0, True)])
def test_a_second_request_ends_it_and_an_echo_of_the_first_does_not(
    interruption, monkeypatch, seconds, ends
):
    raised, now = [], [100.0]
    monkeypatch.setattr(interruption_module.signal, "raise_signal", raised.append)
    monkeypatch.setattr(interruption_module.time, "monotonic", lambda: now[0])
    interruption.finishes_step = True
    os.kill(os.getpid(), signal.SIGTERM)
    now[0] += seconds
    os.kill(os.getpid(), signal.SIGTERM)
    assert raised == ([signal.SIGTERM] if ends else [])
    assert interruption.signal == signal.SIGTERM


def test_the_signal_after_the_last_step_kills_even_while_tensorflow_saves(interruption):
    class Context:
        stopped = False

        def request_stop(self):
            self.stopped = True

    interruption.finishes_step = True
    os.kill(os.getpid(), signal.SIGTERM)
    context = Context()
    interruption.hook().after_run(context, None)
    assert context.stopped
    assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGINT) == signal.SIG_DFL


def test_an_evaluation_ends_at_once(interruption):
    interruption.finishes_step = True
    with pytest.raises(SystemExit) as ended, interruption.at_once():
        os.kill(os.getpid(), signal.SIGINT)
    assert ended.value.code == 130


def test_afterwards_signals_do_what_they_did():
    before = signal.getsignal(signal.SIGTERM)
    with Interruption().awaited():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
