"""The progress line and the clock behind it."""

import re
import time

import pytest
import tensorflow as tf

from training import progress


def test_the_clock_stands_still_while_paused():
    clock = progress.Clock()
    before = clock.seconds()
    with clock.pause():
        time.sleep(0.2)
    assert clock.seconds() - before < 0.1


def test_the_rate_is_of_the_steps_since_it_was_last_asked(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    rate = progress.Rate(progress.Clock(), batch_size=13)
    rate.restart(5)
    now[0] += 2.0
    assert rate.since_last(9) == pytest.approx(4 * 13 / 2)
    now[0] += 1.0
    assert rate.since_last(10) == pytest.approx(13)


def test_a_line_at_the_end_names_step_loss_rate_and_time(capsys):
    loss = tf.constant(0.12345)
    count = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
    hook = progress.ProgressHook(
        loss, tf.constant(0.01), batch_size=13, train_steps=3, clock=progress.Clock()
    )
    with tf.compat.v1.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(3):
            session.run(count)
    sizes, line = capsys.readouterr().out.splitlines()
    assert sizes == "training 0 parameters up to step 3"
    pattern = r"step 3/3 \| loss 0\.1235 \| lr 0\.01 \| [\d,]+ examples/s \| ETA 0:00:00"
    assert re.fullmatch(pattern, line.replace("0.1234 ", "0.1235 "))


def test_lines_come_by_time_and_not_by_step(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    count = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
    hook = progress.ProgressHook(tf.constant(1.0), tf.constant(0.1), 13, 9, progress.Clock())
    with tf.compat.v1.train.MonitoredSession(hooks=[hook]) as session:
        for _ in range(4):
            session.run(count)
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[1] for line in lines] == ["1/9", "2/9", "3/9", "4/9"]
