"""The first and the worst examples, which reports draw."""

import types

import numpy as np
import tensorflow as tf

from engine.evaluation import reports


def examples_of(report, batch_size, size):
    """Runs an evaluation of the numbers below `size`, the final batch padded."""
    settings = types.SimpleNamespace(
        use_tpu=False,
        params={},
        pipeline=None,
        model=types.SimpleNamespace(reports=lambda params, pipeline: [report]),
    )
    with tf.Graph().as_default():
        numbers = tf.data.Dataset.range(-(-size // batch_size) * batch_size).batch(batch_size)
        batch = tf.compat.v1.data.make_one_shot_iterator(numbers).get_next()
        features = {"x": batch, "weight": tf.cast(batch < size, tf.float32)}
        hook = reports.examples_hook(settings, features, batch, lambda: {"twice": 2 * batch})
        with tf.compat.v1.train.MonitoredSession(hooks=[hook]) as session:
            while not session.should_stop():
                session.run(batch)
    return hook


def first_examples(batch_size, count, size):
    return examples_of(_report(count), batch_size, size).first


def _report(num_examples, **ranking):
    write = text = str
    return types.SimpleNamespace(num_examples=num_examples, write=write, text=text, **ranking)


def test_as_many_as_a_report_needs_from_several_batches():
    examples = first_examples(batch_size=5, count=13, size=37)
    np.testing.assert_array_equal(examples["labels"], np.arange(13))
    np.testing.assert_array_equal(examples["predictions"]["twice"], 2 * np.arange(13))


def test_fewer_without_padding_if_the_split_is_smaller():
    examples = first_examples(batch_size=5, count=13, size=7)
    np.testing.assert_array_equal(examples["features"]["x"], np.arange(7))


def test_batches_of_dynamic_padding_have_the_length_of_the_longest():
    found = reports._concatenate({"x": np.array([[1, 2]])}, {"x": np.array([[3, 4, 5], [6, 0, 0]])})
    np.testing.assert_array_equal(found["x"], [[1, 2, 0], [3, 4, 5], [6, 0, 0]])


def test_the_examples_with_the_lowest_scores_of_all_batches():
    def score(features, labels, predictions):
        del features
        return tf.abs(tf.cast(labels + predictions["twice"], tf.float32) / 3 - 17.4)

    report = _report(3, num_worst=4, score=score)
    hook = examples_of(report, batch_size=5, size=18)  # 18 and 19 are padding
    assert hook.worst["labels"].tolist() == [17, 16, 15, 14]
    assert hook.worst["indices"].tolist() == [17, 16, 15, 14]
    np.testing.assert_allclose(hook.worst["scores"], [0.4, 1.4, 2.4, 3.4], rtol=1e-5)
    assert hook.worst["predictions"]["twice"].tolist() == [34, 32, 30, 28]
    assert hook.first["labels"].tolist() == [0, 1, 2]


def test_no_example_is_the_worst_without_a_report_that_ranks():
    assert examples_of(_report(3), batch_size=5, size=7).worst == {}
