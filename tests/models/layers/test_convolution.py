"""Convolutions of a TPU that are computed as other operations: the same numbers."""

import numpy as np
import pytest
import tensorflow as tf

from models.layers import device
from models.layers.convolution import conv2d
from tests import numerics

BATCH, CHANNELS, FILTERS = 3, 5, 7


def compute(kernel_size, shape, padding, use_tpu, channels=CHANNELS):
    """Returns the outputs, gradients of the input and of the kernel, and the graph."""
    random = np.random.default_rng(4)
    kernel_shape = [kernel_size, kernel_size, channels, FILTERS]
    kernel = random.normal(size=kernel_shape).astype(np.float32)
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        x = tf.constant(random.normal(size=[BATCH, *shape, channels]).astype(np.float32))
        with device.scope({"use_tpu": use_tpu}):
            y = conv2d(x, FILTERS, kernel_size, strides=2, padding=padding)
        (variable,) = tf.compat.v1.trainable_variables()
        upstream = tf.constant(random.normal(size=y.shape).astype(np.float32))
        gradients = tf.gradients(y, [x, variable], upstream)
        variable.load(kernel, session)
        return session.run([y, *gradients]), graph


@pytest.mark.parametrize("kernel_size", [1, 3, 7])
@pytest.mark.parametrize("shape", [(8, 6), (7, 6), (6, 9)])
@pytest.mark.parametrize("padding", ["same", "symmetric"])
def test_values_and_gradients_are_those_of_a_cpu(kernel_size, shape, padding):
    actual, expected = (
        compute(kernel_size, shape, padding, use_tpu)[0] for use_tpu in (True, False)
    )
    # The longest sums: of a kernel; over all outputs.
    terms = max(kernel_size**2 * CHANNELS, BATCH * 5 * 5)
    for ours, theirs in zip(actual, expected):
        numerics.assert_close(ours, theirs, terms=terms, magnitude=np.abs(theirs).max())


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("shape", [(8, 6), (12, 14)])
def test_a_convolution_of_2x2_pixels_is_that_of_an_image(shape, channels):
    (actual, graph), (expected, _) = (
        compute(7, shape, "symmetric", use_tpu, channels) for use_tpu in (True, False)
    )
    strides = {
        tuple(op.get_attr("strides")) for op in graph.get_operations() if op.type == "Conv2D"
    }
    assert strides == {(1, 1, 1, 1)}
    terms = max(7**2 * channels, BATCH * 6 * 7)
    for ours, theirs in zip(actual, expected):
        numerics.assert_close(ours, theirs, terms=terms, magnitude=np.abs(theirs).max())


@pytest.mark.parametrize("kernel_size", [1, 3])
def test_gradients_of_the_input_have_no_strides(kernel_size):
    """XLA computes those of strided convolutions as convolutions of zeros, for the most part."""

    def strides(use_tpu):
        graph = compute(kernel_size, (8, 6), "symmetric", use_tpu)[1]
        kinds = {"Conv2D", "Conv2DBackpropInput"} if use_tpu else {"Conv2DBackpropInput"}
        found = [op for op in graph.get_operations() if op.type in kinds and "gradients" in op.name]
        return {tuple(op.get_attr("strides")) for op in found}

    assert strides(use_tpu=True) == {(1, 1, 1, 1)}
    assert strides(use_tpu=False) == {(1, 2, 2, 1)}
