"""Convolutions with strides of 2 and their transposes: the same numbers without strides."""

import numpy as np
import pytest
import tensorflow as tf

from models.layers import device
from models.layers.strided_convolution import doubling_conv2d, halving_conv2d
from tests import numerics

BATCH, CHANNELS, FILTERS = 3, 5, 7


def compute(convolution, kernel_size, shape, use_tpu, second_order=False):
    """Returns the outputs and gradients, and the strides of transposed convolutions."""
    random = np.random.default_rng(4)
    channels = [CHANNELS, FILTERS] if convolution is halving_conv2d else [FILTERS, CHANNELS]
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        x, kernel = (
            tf.constant(random.normal(size=size).astype(np.float32))
            for size in ([BATCH, *shape, CHANNELS], [kernel_size, kernel_size, *channels])
        )
        with device.scope({"use_tpu": use_tpu}):
            y = convolution(x, kernel)
        upstream = tf.constant(random.normal(size=y.shape).astype(np.float32))
        gradients = tf.gradients(y, [x, kernel], upstream)
        if second_order:  # as in a gradient penalty
            penalty = tf.reduce_sum(tf.square(gradients[0]))
            gradients += tf.gradients(penalty, [kernel, upstream])
        strides = {
            tuple(op.get_attr("strides"))
            for op in graph.get_operations()
            if op.type == "Conv2DBackpropInput"
        }
        return session.run([y, *gradients]), strides


def test_many_channels_are_left_to_xla():
    for channels, strides in ((32, set()), (33, {(1, 2, 2, 1)})):
        with tf.Graph().as_default() as graph, device.scope({"use_tpu": True}):
            doubling_conv2d(tf.zeros([BATCH, 3, 2, 5]), tf.zeros([4, 4, channels, 5]))
        found = [op for op in graph.get_operations() if op.type == "Conv2DBackpropInput"]
        assert {tuple(op.get_attr("strides")) for op in found} == strides


def check(actual, expected, kernel_size):
    # The longest sums: of a kernel; over all outputs; of a sum of squares of sums.
    terms = max(kernel_size**2 * FILTERS, BATCH * 8 * 12 * 4)
    for ours, theirs in zip(actual, expected):
        numerics.assert_close(ours, theirs, terms=terms, depth=2, magnitude=np.abs(theirs).max())


@pytest.mark.parametrize("kernel_size", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("convolution", [halving_conv2d, doubling_conv2d])
def test_values_and_gradients_are_those_of_a_cpu(convolution, kernel_size):
    (actual, strides), (expected, of_cpu) = (
        compute(convolution, kernel_size, (8, 6), use_tpu) for use_tpu in (True, False)
    )
    check(actual, expected, kernel_size)
    # The gradient of pixels that share no value is left to TensorFlow: it has no strides of 2.
    of_tpu = {(1, 1, 1, 1)} if (convolution, kernel_size) == (doubling_conv2d, 2) else set()
    assert (strides, of_cpu) == (of_tpu, {(1, 2, 2, 1)})


@pytest.mark.parametrize("convolution", [halving_conv2d, doubling_conv2d])
def test_gradients_of_gradients_are_those_of_a_cpu(convolution):
    actual, expected = (
        compute(convolution, 4, (8, 6), use_tpu, second_order=True)[0] for use_tpu in (True, False)
    )
    assert len(actual) == 5
    check(actual, expected, 4)


@pytest.mark.parametrize("shape", [(7, 6), (6, 9)])
def test_odd_sides_are_halved_as_elsewhere(shape):
    actual, expected = (compute(halving_conv2d, 5, shape, use_tpu)[0] for use_tpu in (True, False))
    check(actual, expected, 5)


def test_a_transposed_convolution_is_that_of_keras():
    (y, *_), _ = compute(doubling_conv2d, 4, (3, 2), use_tpu=True)
    random = np.random.default_rng(4)
    x = random.normal(size=[BATCH, 3, 2, CHANNELS]).astype(np.float32)
    kernel = random.normal(size=[4, 4, FILTERS, CHANNELS]).astype(np.float32)
    layer = tf.keras.layers.Conv2DTranspose(FILTERS, 4, 2, "same", use_bias=False)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        expected = layer(tf.constant(x))
        layer.kernel.load(kernel, session)
        expected = session.run(expected)
    numerics.assert_close(y, expected, terms=4 * CHANNELS, magnitude=np.abs(expected).max())
