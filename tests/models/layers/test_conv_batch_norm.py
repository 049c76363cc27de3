"""Convolutions with batch norm in a TPU's form: values and gradients of the layers they stand for.

Over the cores of an emulated TPU they are tested in test_tpu_equals_cpu.py.
"""

import numpy as np
import pytest
import tensorflow as tf

from models.layers import device, normalization
from models.layers.conv_batch_norm import conv2d_batch_norm, stem
from tests import numerics

BATCH, HEIGHT, WIDTH, CHANNELS, FILTERS = 5, 6, 7, 3, 13
# The longest sums: over the batch, height and width. Convolution, statistics, scale and offset,
# there and back: mean and covariance, and three products with the weights.
ARITHMETIC = {"terms": BATCH * HEIGHT * WIDTH, "depth": 2 * (4 + 3 + 2 + 3)}


def run(build, shape, use_tpu):
    """Returns the output, gradients of the input and all weights, and the moving averages."""
    random = np.random.default_rng(2)
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        x = tf.constant(random.normal(1, 2, shape), tf.float32)
        with device.scope({"use_tpu": use_tpu}):
            y = build(x, normalization.default_params())
        weights = tf.compat.v1.trainable_variables()
        upstream = tf.constant(random.normal(size=y.shape), tf.float32)
        gradients = tf.gradients(y, [x, *weights], upstream)
        session.run(tf.compat.v1.global_variables_initializer())
        for variable in tf.compat.v1.global_variables():  # gammas of both signs
            variable.load(random.normal(1, 1, variable.shape), session)
        found = session.run([y, *gradients])
        session.run(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS))
        kinds = [op.type for op in graph.get_operations()]
        averages = [v for v in tf.compat.v1.global_variables() if "moving" in v.name]
        return [*found, *session.run(averages)], kinds


def assert_same(build, shape, **arithmetic):
    actual, kinds = run(build, shape, use_tpu=True)
    expected, _ = run(build, shape, use_tpu=False)
    assert not any(kind.startswith("FusedBatchNorm") for kind in kinds)
    for ours, theirs in zip(actual, expected, strict=True):
        numerics.assert_close(ours, theirs, magnitude=np.abs(theirs).max(), **arithmetic)


@pytest.mark.parametrize("strides", [1, 2, 3])
def test_an_expansion_has_the_values_and_gradients_of_its_layers(strides):
    def build(x, params):
        return conv2d_batch_norm(x, FILTERS, 1, params, training=True, keeps_every=strides)

    assert_same(build, [BATCH, HEIGHT, WIDTH, CHANNELS], **ARITHMETIC)


def test_an_expansion_differs_from_another_variance():
    def build(x, params, epsilon):
        params = {**params, "batch_norm_epsilon": epsilon}
        return conv2d_batch_norm(x, FILTERS, 1, params, training=True)

    shape = [BATCH, HEIGHT, WIDTH, CHANNELS]
    (actual, *_), _ = run(lambda x, params: build(x, params, 1e-3), shape, use_tpu=True)
    (other, *_), _ = run(lambda x, params: build(x, params, 2e-1), shape, use_tpu=False)
    numerics.assert_far(actual, other, **ARITHMETIC)


# 27 products of a pixel instead of the sums over channels; as above otherwise.
OF_BLOCKS = {"terms": BATCH * HEIGHT * 8 * 9 * CHANNELS, "depth": ARITHMETIC["depth"]}


@pytest.mark.parametrize("others", [0, 2])
def test_few_channels_have_the_values_and_gradients_of_pixels(others):
    def build(x, params):
        maps = [x, 2 * x[..., :others]] if others else x
        return conv2d_batch_norm(maps, FILTERS, 3, params, training=True, activation=tf.nn.softplus)

    assert_same(build, [BATCH, HEIGHT, 8, CHANNELS], **OF_BLOCKS)


def test_blocks_in_another_order_differ():
    def build(x, params, use_tpu):
        x = tf.reverse(x, [2]) if use_tpu else x
        return conv2d_batch_norm(x, FILTERS, 3, params, training=True, activation=tf.nn.softplus)

    shape = [BATCH, HEIGHT, 8, CHANNELS]
    (actual, *_), _ = run(lambda x, params: build(x, params, True), shape, use_tpu=True)
    (other, *_), _ = run(lambda x, params: build(x, params, False), shape, use_tpu=False)
    numerics.assert_far(actual, other, **OF_BLOCKS)


@pytest.mark.parametrize(
    ("width", "batch", "activation", "is_blocks"),
    [
        (8, BATCH, tf.nn.relu, True),
        (WIDTH, BATCH, tf.nn.relu, False),  # an odd side
        (8, 32, tf.nn.relu, False),  # images along the lanes
        (8, BATCH, None, False),
    ],
)
def test_blocks_are_computed_only_where_they_save_time(width, batch, activation, is_blocks):
    def build(x, params):
        return conv2d_batch_norm(x, FILTERS, 3, params, training=True, activation=activation)

    kinds = run(build, [batch, HEIGHT, width, CHANNELS], use_tpu=True)[1]
    assert ("SpaceToDepth" in kinds) == is_blocks


def num_convolutions(filters, shape, trainable=".*"):
    def build(x, params):
        params = {**params, "trainable": trainable}
        return conv2d_batch_norm(x, filters, 1, params, training=True)

    kinds = run(build, shape, use_tpu=True)[1]
    return kinds.count("Conv2DBackpropFilter")


def test_products_of_channels_are_computed_only_where_they_save_time():
    shape = [BATCH, HEIGHT, WIDTH, CHANNELS]
    assert num_convolutions(4 * CHANNELS, shape) == 2
    assert num_convolutions(4 * CHANNELS - 1, shape) == 1
    assert num_convolutions(4 * CHANNELS, [2, 3, 3, CHANNELS]) == 1
    assert num_convolutions(4 * CHANNELS, shape, trainable="logits/.*") == 1


@pytest.mark.parametrize("batch_size", [3, 33])
def test_a_stem_has_the_values_and_gradients_of_its_layers(batch_size):
    def build(x, params):
        pooled, before = stem(x, FILTERS, params, training=True, needs_map=False)
        assert (before is None) == device.is_tpu()
        return pooled

    arithmetic = {"terms": max(batch_size * 4 * 6, 7 * 7 * 3), "depth": ARITHMETIC["depth"]}
    assert_same(build, [batch_size, 8, 12, 3], **arithmetic)


@pytest.mark.parametrize(
    ("height", "training", "needs_map"), [(10, True, False), (8, False, False), (8, True, True)]
)
def test_a_stem_has_no_form_for_other_sizes_outside_training_and_with_its_map(
    height, training, needs_map
):
    with tf.Graph().as_default(), device.scope({"use_tpu": True}):
        images, params = tf.zeros([3, height, 8, 3]), normalization.default_params()
        _, before = stem(images, FILTERS, params, training, needs_map)
        assert before.shape == (3, height // 2, 4, FILTERS)
