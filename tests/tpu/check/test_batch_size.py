"""Whether input_fn returns params['batch_size'] examples, whatever the shapes are."""

import pytest
import tensorflow as tf

from tests.marks import slow
from tests.tpu.check.regression import (
    NUM_FEATURES,
    InputConfig,
    check,
    codes,
    make_model_fn,
    rows,
    squares,
)
from tpu.findings import ERROR, WARNING

tf1 = tf.compat.v1


def batched_by(size):
    def input_fn(params):
        return rows({"batch_size": size(params["batch_size"])})

    return input_fn


def flattened(params):
    """Images as the official ResNet feeds them: transposed, then flattened."""
    size = params["batch_size"] * NUM_FEATURES
    return rows(params).map(lambda x, y: (tf.reshape(tf.transpose(x), [size]), y))


def with_constant(params):
    return rows(params).map(lambda x, y: ({"x": x, "table": tf.zeros([3, 2])}, y))


def with_flat_positions(params):
    """Three masked positions an example, in one vector."""
    size = params["batch_size"] * 3
    return rows(params).map(lambda x, y: ({"x": x, "at": tf.zeros([size], tf.int32)}, y))


def with_weights(params):
    size = params["batch_size"]
    return rows(params).map(lambda x, y: ({"x": x, "weight": tf.ones([size])}, y))


def loss_of_flat(features, labels):
    return squares(tf.transpose(tf.reshape(features, [NUM_FEATURES, -1])), labels)


def loss_of_dict(features, labels):
    others = [tf.cast(value, tf.float32) for name, value in features.items() if name != "x"]
    return squares(features["x"], labels) + sum(tf.reduce_mean(value) for value in others)


@pytest.mark.parametrize(
    ("input_fn", "loss"),
    [
        (rows, squares),
        (flattened, loss_of_flat),
        (with_constant, loss_of_dict),
        slow(with_flat_positions, loss_of_dict),
        slow(with_weights, loss_of_dict),
        (batched_by(lambda size: 8), squares),  # the right size by chance
    ],
)
def test_right_batches_in_any_shape_are_no_findings(input_fn, loss):
    assert check(make_model_fn(loss), input_fn).findings == ()


def tensors(params):
    return tf1.data.make_one_shot_iterator(rows(params)).get_next()


@pytest.mark.parametrize(
    ("config", "input_fn"),
    [
        slow(InputConfig.PER_HOST_V1, rows),
        (InputConfig.PER_HOST_V1, tensors),
        (InputConfig.PER_SHARD_V1, tensors),
        (InputConfig.BROADCAST, rows),
    ],
)
def test_every_input_pipeline_has_its_batch(config, input_fn):
    report = check(make_model_fn(), input_fn, per_host_input_for_training=config)
    assert report.findings == ()
    assert report.modes["train"].batch_size == (16 if config == InputConfig.BROADCAST else 8)


@pytest.mark.parametrize(("size", "level"), [slow(6, ERROR), (32, ERROR)])
def test_hard_coded_batch(size, level):
    (finding,) = check(make_model_fn(), batched_by(lambda _: size)).findings
    assert (finding.level, finding.code) == (level, "batch")
    message = f"input_fn returns ({size}, 5) whatever params['batch_size'] is, which is 8"
    assert message in finding.message


@pytest.mark.parametrize(("change", "examples"), [(lambda n: n // 2, 4), (lambda n: 2 * n, 16)])
def test_batch_divided_or_multiplied_again(change, examples):
    report = check(make_model_fn(), batched_by(change))
    assert codes(report) == [(WARNING, "batch")]
    assert f"batches of {examples} examples" in report.findings[0].message


def test_input_fn_that_fails_for_another_batch_is_not_checked():
    def input_fn(params):
        assert params["batch_size"] == 8
        return rows({"batch_size": 32})

    report = check(make_model_fn(), input_fn)
    assert report.findings == ()
    assert any("batch size of input_fn: AssertionError" in line for line in report.not_checked)
