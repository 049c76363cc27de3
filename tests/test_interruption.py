"""Signals and closed pipes: training finishes its step, saves, and exits."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from common import standard_streams
from engine.checkpoints import checkpoint_files
from engine.hooks import preemption
from engine.hooks.preemption import SignalHandler
from tests.marks import slow

ROOT = pathlib.Path(__file__).parents[1]
MODE = "--mode=train"
SAVED = 50
# Ends after a minute even if it ignores the signal.
LONG = ["--train_steps=10000", f"--save_checkpoints_steps={SAVED}"]
TPU = ("--tpu=emulator", "--tpu_topology=1x2", "--train_batch_size=14")


@pytest.fixture
def interrupted(command, tmp_path):
    """Interrupts a training after its first checkpoint; returns its status and output."""

    def run(program, number, *arguments):
        process = subprocess.Popen(
            command(program, MODE, *LONG, *arguments),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            while checkpoint_files.newest_step(str(tmp_path / "model")) < SAVED:
                if process.poll() is not None:
                    pytest.fail("it exited before it was interrupted")
                time.sleep(0.05)
            process.send_signal(number)
            output, _ = process.communicate()
        finally:
            process.kill()
        return process.returncode, output

    return run


@pytest.mark.parametrize(
    ("program", "number", "status", "arguments"),
    [
        slow("run_cpu.py", signal.SIGINT, 130, ()),
        slow("run_cpu.py", signal.SIGTERM, 143, ()),
        slow("run_tpu.py", signal.SIGTERM, 143, TPU),
    ],
)
def test_training_saves_before_it_exits(
    interrupted, variables, tmp_path, program, number, status, arguments
):
    returned, output = interrupted(program, number, *arguments)
    assert returned == status
    stopped = [line for line in output.splitlines() if line.startswith("stopped by")]
    assert stopped == [f"stopped by {number.name}; run the same command again to resume"]
    step = int(variables(tmp_path / "model")["global_step"])
    assert step >= SAVED
    assert (tmp_path / "model" / f"result_{step}.json").exists()


@pytest.mark.slow  # like that of tests/test_run_cpu.py
def test_a_resumed_training_ends_with_bit_identical_weights(
    interrupted, run_in, variables, tmp_path
):
    interrupted("run_cpu.py", signal.SIGTERM)
    end = variables(tmp_path / "model")["global_step"] + 30
    for folder in ("model", "once"):
        run_in(tmp_path / folder, MODE, f"--train_steps={end}")
    resumed, once = (variables(tmp_path / folder) for folder in ("model", "once"))
    for name, value in once.items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)


@pytest.fixture
def handler():
    """An installed SignalHandler. A job in the background may have inherited ignored signals."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    inherited = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    handler = SignalHandler()
    with handler.installed():
        yield handler
    for number, action in inherited.items():
        signal.signal(number, action)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_signal_during_a_step_is_recorded(handler, capsys, number, status):
    handler.saves_first = True
    os.kill(os.getpid(), number)
    assert handler.signal == number
    assert "a second signal kills" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        handler.exit_if_requested()
    assert ended.value.code == status


def test_a_closed_pipe_during_a_step_is_recorded(handler):
    handler.saves_first = True
    standard_streams.on_closed_pipe()
    with pytest.raises(SystemExit) as ended:
        handler.exit_if_requested()
    assert ended.value.code == 141


def test_an_ignored_signal_stays_ignored():
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    handler = SignalHandler()
    with handler.installed():
        os.kill(os.getpid(), signal.SIGHUP)
        handler.restore_defaults()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    signal.signal(signal.SIGHUP, before)
    assert handler.signal is None


def test_a_second_signal_in_a_program_of_the_caller_has_its_handler(monkeypatch, capsys):
    """A notebook's kernel survives the stop button."""
    monkeypatch.setattr(preemption, "_SECONDS_OF_ONE_REQUEST", -1.0)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    handler = SignalHandler()
    try:
        with preemption.called(), handler.installed():
            handler.saves_first = True
            os.kill(os.getpid(), signal.SIGINT)
            assert handler.signal == signal.SIGINT
            handler.restore_defaults()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert "a second signal stops without saving" in capsys.readouterr().out


@pytest.mark.parametrize(("seconds", "ends"), [(1000.0, False), (-1.0, True)])
def test_a_second_request_kills_but_a_repeated_signal_does_not(handler, monkeypatch, seconds, ends):
    raised = []
    monkeypatch.setattr(preemption.signal, "raise_signal", raised.append)
    monkeypatch.setattr(preemption, "_SECONDS_OF_ONE_REQUEST", seconds)
    handler.saves_first = True
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    assert raised == ([signal.SIGTERM] if ends else [])
    assert handler.signal == signal.SIGTERM


def test_after_the_last_step_the_default_handlers_are_restored(handler):
    class Context:
        stopped = False

        def request_stop(self):
            self.stopped = True

    handler.saves_first = True
    os.kill(os.getpid(), signal.SIGTERM)
    context = Context()
    handler.hook().after_run(context, None)
    assert context.stopped
    assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGINT) == signal.SIG_DFL


def test_a_signal_during_an_evaluation_exits_at_once(handler):
    handler.saves_first = True
    with pytest.raises(SystemExit) as ended, handler.exiting_at_once():
        os.kill(os.getpid(), signal.SIGINT)
    assert ended.value.code == 130


# The main thread waits in TensorFlow, as for another process of a cluster.
BLOCKED = """
import os, sys
import tensorflow as tf
from engine.hooks import preemption
preemption._SECONDS_TO_RETURN = 0.2
handler = preemption.SignalHandler()
with handler.installed(), tf.Graph().as_default():
    handler.saves_first = sys.argv[1] == "step"
    with tf.control_dependencies([tf.print("waits", output_stream=sys.stdout)]):
        never = tf.queue.FIFOQueue(1, [tf.int32]).dequeue()
    with tf.compat.v1.Session() as session:
        session.run(never)
"""


@pytest.mark.parametrize(
    ("phase", "lines"),
    [
        slow("start", ["stopped by SIGTERM; run the same command again"]),
        slow(
            "step",
            [
                "SIGTERM: finishing the step and saving it; a second signal kills the process",
                "stopped by SIGTERM; run the same command again",
            ],
        ),
    ],
)
def test_signals_end_a_process_that_waits_for_another(phase, lines):
    process = subprocess.Popen(
        [sys.executable, "-c", BLOCKED, phase], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "waits\n"
        for line in lines:
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readline() == f"{line}\n"
            time.sleep(1.1)  # a second signal within a second belongs to the first
        assert process.wait() == 143
    finally:
        process.kill()


def test_handlers_are_restored_afterwards():
    before = signal.getsignal(signal.SIGTERM)
    with SignalHandler().installed():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
