"""Progress lines, clock and step counter."""

import re
import time

import pytest
import tensorflow as tf

from common import progress_line
from engine.hooks import progress


@pytest.fixture
def now(monkeypatch):
    """Replaces time.monotonic; a test advances now[0]."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_the_clock_pauses(now):
    clock = progress.Clock()
    before = clock.seconds()
    now[0] += 3.0
    with clock.pause():
        now[0] += 2.0
    assert clock.seconds() - before == 3.0


def test_the_rate_is_since_the_last_call(now):
    rate = progress.Rate(progress.Clock(), batch_size=13)
    rate.restart(5)
    now[0] += 2.0
    assert rate.since_last(9) == pytest.approx(4 * 13 / 2)
    now[0] += 1.0
    assert rate.since_last(10) == pytest.approx(13)


def make_hooks(train_steps, steps_per_run=1):
    """Returns hooks for a graph with loss 0.125 and learning rate step / 100."""
    tf.compat.v1.losses.add_loss(tf.constant(0.125))
    counter = progress.StepCounter(steps_per_run)
    hook = progress.ProgressHook(
        lambda step: tf.cast(step, tf.float32) / 100,
        batch_size=13,
        train_steps=train_steps,
        clock=progress.Clock(),
        counter=counter,
    )
    return [counter, hook]


def train(hooks, runs, steps_per_run=1):
    count = tf.compat.v1.train.get_or_create_global_step().assign_add(steps_per_run)
    with tf.compat.v1.train.MonitoredSession(hooks=hooks) as session:
        for _ in range(runs):
            session.run(count)


@pytest.mark.parametrize("steps_per_run", [1, 3])
def test_the_last_line_has_step_loss_rate_and_eta(capsys, steps_per_run):
    train(make_hooks(3, steps_per_run), 3 // steps_per_run, steps_per_run)
    sizes, line = capsys.readouterr().out.splitlines()
    assert sizes == "training 0 parameters up to step 3"
    # The learning rate of the third step: global_step was 2 before it.
    pattern = r"step 3/3 \| loss 0\.1250 \| lr 0\.02 \| [\d,]+ examples/s \| ETA 0:00:00"
    assert re.fullmatch(pattern, line)


def test_a_hook_supports_several_sessions(capsys):
    hooks = make_hooks(4)
    for _ in range(2):
        with tf.Graph().as_default():
            tf.compat.v1.losses.add_loss(tf.constant(0.5))
            train(hooks, 4)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["training", "step", "step"]


def test_a_short_evaluation_prints_nothing(capsys):
    train([progress.EvalProgressHook("eval", 25, batch_size=13)], 2)
    assert capsys.readouterr().out == ""


def test_a_long_evaluation_prints_its_progress(capsys, monkeypatch):
    monkeypatch.setattr(progress_line, "_SECONDS_IN_A_LOG", 0.0)
    train([progress.EvalProgressHook("eval", 25, batch_size=13)], 2)
    first, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"eval 13/25 \| [\d,]+ examples/s \| ETA \d:\d\d:\d\d", first)
    assert re.fullmatch(r"eval 25/25 \| [\d,]+ examples/s \| ETA 0:00:00", last)


def test_lines_are_printed_by_time(capsys, monkeypatch):
    monkeypatch.setattr(progress_line, "_SECONDS_IN_A_LOG", 0.0)
    train(make_hooks(9), 4)
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[1] for line in lines] == ["1/9", "2/9", "3/9", "4/9"]


class Takes(tf.estimator.SessionRunHook):
    """Lets each session.run take a time."""

    def __init__(self, now, seconds):
        self._now, self._seconds = now, iter(seconds)

    def before_run(self, run_context):
        self._now[0] += next(self._seconds)


def test_the_first_step_says_nothing_about_the_time_left(capsys, now, monkeypatch):
    monkeypatch.setattr(progress_line, "_SECONDS_IN_A_LOG", 0.0)
    train([*make_hooks(9), Takes(now, [60.0, 2.0, 4.0])], 3)
    second, third = capsys.readouterr().out.splitlines()[-2:]
    assert second.endswith("| 6 examples/s | ETA 0:00:14")  # 13 examples and 7 steps of 2 s
    assert third.endswith("| 3 examples/s | ETA 0:00:18")  # 6 steps of (2 + 4) / 2 s
