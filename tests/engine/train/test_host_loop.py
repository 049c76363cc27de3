"""Several steps per session.run: number of steps, and equality with single steps."""

import types

import numpy as np
import pytest
import tensorflow as tf

from engine.cli import resolve_flags
from engine.hooks.progress import Clock
from engine.hooks.summaries import TrainSummaryHook
from engine.train import host_loop
from input_fns.core import records
from tests import numerics


@pytest.fixture
def counter():
    return host_loop.LoopCounter(4, 10, end=13)


def model_fn(features, labels, mode, params):
    """Adds the batch, one number, to a sum. params["loss"] maps the batch to the loss."""
    del labels
    total = tf.compat.v1.get_variable("total", [], initializer=tf.zeros_initializer())
    global_step = tf.compat.v1.train.get_or_create_global_step()
    with tf.control_dependencies([total.assign_add(features)]):
        op = global_step.assign_add(1, read_value=False)
    settings = types.SimpleNamespace(
        model_dir="", train=types.SimpleNamespace(batch_size=1, summary_steps=4)
    )
    state = types.SimpleNamespace(clock=Clock(), counter=None)
    hook = TrainSummaryHook(lambda: tf.strings.as_string(features, 0), settings, state)
    return tf.estimator.EstimatorSpec(
        mode, loss=params["loss"](features), train_op=op, training_hooks=[hook]
    )


def numbers(params):
    """The numbers 1, 2, 3..."""
    return tf.data.Dataset.range(1, 1000).map(lambda n: (tf.cast(n, tf.float32), n))


def train(counter, loss=tf.identity, input_fn=numbers):
    """Trains on the numbers 1, 2, 3...; returns `(step, loss, summary)` after each session.run."""
    batches, _ = host_loop.decorate_input_fn(input_fn)({})
    looped = host_loop.decorate_model_fn(model_fn, counter, 4)
    spec = looped(batches, None, tf.estimator.ModeKeys.TRAIN, {"loss": loss})
    start_reading, summary_hook = spec.training_hooks
    fetches = [spec.train_op, spec.loss, summary_hook.summary]
    runs = []
    with tf.compat.v1.train.MonitoredSession(hooks=[counter, start_reading]) as session:
        while not session.should_stop():
            _, loss, text = session.run(fetches)
            runs.append((counter.step, loss, text.decode()))
    return runs


@pytest.fixture
def time_passes(monkeypatch):
    """Advances time.monotonic by a number of seconds per call, from 0."""

    def passes(seconds):
        clock = iter(np.arange(0, 1000 * seconds, seconds))
        monkeypatch.setattr(host_loop.time, "monotonic", lambda: next(clock))

    return passes


def test_each_step_gets_the_next_batch(counter):
    runs = train(counter)
    assert [loss for _, loss, _ in runs] == [step for step, _, _ in runs]


def test_lookup_tables_are_initialized_before_reading_starts(counter, tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text("".join(f"{n}\n" for n in range(100_000)))

    def looked_up(params):
        table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                str(path), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            -1,
        )  # fmt: skip
        texts = tf.data.Dataset.range(1, 1000).map(tf.strings.as_string)
        ids = texts.map(lambda text: (tf.cast(table.lookup(text), tf.float32), text))
        return records.with_options(ids.prefetch(1))

    runs = train(counter, input_fn=looked_up)
    assert [loss for _, loss, _ in runs] == [step for step, _, _ in runs]


def test_loops_grow_and_end_at_every_stop(counter, time_passes):
    time_passes(1e-4)
    # Loops of 1 and 2 steps, then up to the stops 4, 8, 10 and 12, and the end.
    assert [step for step, _, _ in train(counter)] == [1, 3, 4, 8, 10, 12, 13]


def test_slow_steps_run_one_per_loop(counter, time_passes):
    time_passes(0.2)
    assert [step for step, _, _ in train(counter)] == list(range(1, 14))


def test_a_loop_takes_a_tenth_of_a_second(monkeypatch):
    counter = host_loop.LoopCounter(end=13)
    monkeypatch.setattr(host_loop.time, "monotonic", lambda: 0.03 * counter.step)
    assert [step for step, _, _ in train(counter)] == [1, 3, 6, 9, 12, 13]


def test_summaries_are_of_multiples_of_summary_steps(counter):
    texts = {step: text for step, _, text in train(counter) if text}
    assert texts == {4: "4", 8: "8", 12: "12"}


def test_a_loss_that_is_not_finite_ends_the_loop(counter, time_passes):
    time_passes(1e-4)

    runs = train(counter, lambda n: tf.where(tf.equal(n, 6), np.nan, n))
    assert [step for step, _, _ in runs][:5] == [1, 3, 4, 6, 8]
    assert np.isnan(runs[3][1])


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--accumulate_steps=2", "--params=optimizer=momentum"])
def test_loops_match_single_steps(run_in, variables, monkeypatch, tmp_path, flag):
    arguments = ["--mode=train", "--train_steps=13", "--train_batch_size=12", flag]
    run_in(tmp_path / "loops", *arguments)
    resolve = resolve_flags.resolve
    monkeypatch.setattr(resolve_flags, "resolve", lambda task, in_loops: resolve(task=task))
    run_in(tmp_path / "steps", *arguments, "--save_checkpoints_steps=12")
    # 13 steps of two layers and a loss, forward and backward, and an optimizer, on 7x5 pixels.
    arithmetic = {"terms": 7 * 5, "depth": 13 * (2 * (1 + 2 * 2 + 6) + 10)}
    loops, by_step = variables(tmp_path / "loops"), variables(tmp_path / "steps")
    numerics.assert_all_close(loops, by_step, **arithmetic)
    assert loops["global_step"] == by_step["global_step"] == 13
    fewer = tf.train.load_variable(f"{tmp_path}/steps/model.ckpt-12", "logits/kernel")
    numerics.assert_far(fewer, loops["logits/kernel"], **arithmetic)
