"""The first examples of an evaluation, which reports draw."""

import types

import numpy as np
import tensorflow as tf

from engine.evaluation import reports


def first_examples(batch_size, count, size):
    """Runs an evaluation of the numbers below `size`, the final batch padded."""
    wanted = types.SimpleNamespace(num_examples=count)
    settings = types.SimpleNamespace(
        use_tpu=False,
        params={},
        pipeline=None,
        model=types.SimpleNamespace(reports=lambda params, pipeline: [wanted]),
    )
    with tf.Graph().as_default():
        numbers = tf.data.Dataset.range(-(-size // batch_size) * batch_size).batch(batch_size)
        batch = tf.compat.v1.data.make_one_shot_iterator(numbers).get_next()
        features = {"x": batch, "weight": tf.cast(batch < size, tf.float32)}
        reports.keep_first_examples(settings, features, batch, lambda: {"twice": 2 * batch})
        hook = reports.FirstExamplesHook()
        with tf.compat.v1.train.MonitoredSession(hooks=[hook]) as session:
            while not session.should_stop():
                session.run(batch)
    return hook.examples


def test_as_many_as_a_report_needs_from_several_batches():
    examples = first_examples(batch_size=5, count=13, size=37)
    np.testing.assert_array_equal(examples["labels"], np.arange(13))
    np.testing.assert_array_equal(examples["predictions"]["twice"], 2 * np.arange(13))


def test_fewer_without_padding_if_the_split_is_smaller():
    examples = first_examples(batch_size=5, count=13, size=7)
    np.testing.assert_array_equal(examples["features"]["x"], np.arange(7))
