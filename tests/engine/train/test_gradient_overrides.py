"""Gradients of convolutions are those of float64 arithmetic, whatever kernels the CPU has."""

import numpy as np
import pytest
import tensorflow as tf

from engine.train import gradient_overrides
from tests import numerics

BATCH, FILTERS = 13, 5


def gradients_of_conv2d(images, kernel, weights, strides, padding):
    """Gradients of `sum(weights * conv2d(images, kernel))` by the images and by the kernel."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fed = {tf.compat.v1.placeholder(tf.float32, a.shape): a for a in (images, kernel)}
        with gradient_overrides.override_gradients({}):
            result = tf.nn.conv2d(*fed, strides, padding)
        return session.run(tf.gradients(result, [*fed], weights), fed)


# oneDNN writes past its workspace for fewer channels than a vector has, 8 or 16.
@pytest.mark.parametrize("channels", [1, 4, 7, 12, 16])
@pytest.mark.parametrize(("size", "strides"), [((8, 8), 2), ((6, 9), 3), ((7, 10), (1, 2))])
def test_a_strided_1x1_convolution(channels, size, strides):
    random = np.random.default_rng(1)
    vertical, horizontal = strides if isinstance(strides, tuple) else (strides, strides)
    images = random.normal(size=[BATCH, *size, channels])
    kernel = random.normal(size=[1, 1, channels, FILTERS])
    read = images[:, ::vertical, ::horizontal]
    weights = random.normal(size=[*read.shape[:3], FILTERS])
    of_images = np.zeros_like(images)
    of_images[:, ::vertical, ::horizontal] = weights @ kernel[0, 0].T
    of_kernel = np.einsum("bhwc,bhwf->cf", read, weights)[np.newaxis, np.newaxis]
    for padding in ("SAME", "VALID"):
        found = gradients_of_conv2d(images, kernel, weights.astype(np.float32), strides, padding)
        numerics.assert_close(found[0], of_images, terms=FILTERS, depth=2)
        numerics.assert_close(found[1], of_kernel, terms=read[..., 0].size, depth=2)


@pytest.mark.parametrize(
    ("kernel_size", "strides", "channels"), [(3, 2, 3), (1, 1, 3), (1, 2, 16), (2, 1, 20)]
)
def test_others_have_tensorflow_s_own(graph, kernel_size, strides, channels):
    images = tf.zeros([BATCH, 8, 8, channels])
    kernel = tf.zeros([kernel_size, kernel_size, channels, FILTERS])
    with gradient_overrides.override_gradients({}):
        result = tf.nn.conv2d(images, kernel, strides, "SAME")
    tf.gradients(result, [images, kernel])
    assert not [op for op in graph.get_operations() if op.type == "StridedSlice"]
