"""Resizing by matrix products equals TensorFlow's and NumPy's, forward and backward."""

import numpy as np
import pytest
import tensorflow as tf

from models.layers import device, resize
from tests import numerics

MAPS = np.random.default_rng(7).normal(size=[2, 5, 3, 4]).astype(np.float32)


@pytest.mark.parametrize("size", [(10, 12), (7, 11), (3, 2), (5, 1), (1, 3), (5, 3)])
def test_resized_maps_are_those_of_tensorflow(size, eager):
    x = tf.constant(MAPS)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        ours, theirs = resize.resize_bilinear(x, *size), tf.image.resize(x, size)
    # Two sums of two products; the gradient of an input sums up to 5 x 4 outputs.
    numerics.assert_close(ours.numpy(), theirs.numpy(), terms=2, depth=4)
    upstream = np.random.default_rng(8).normal(size=ours.shape).astype(np.float32)
    gradients = [tape.gradient(y, x, tf.constant(upstream)).numpy() for y in (ours, theirs)]
    numerics.assert_close(*gradients, terms=20, depth=4)


def test_a_map_of_one_pixel_is_repeated():
    np.testing.assert_array_equal(resize.interpolation_matrix(1, 3), [[1], [1], [1]])


@pytest.mark.parametrize("use_tpu", [False, True])
def test_a_doubled_map_has_each_value_four_times(use_tpu, session):
    values = np.random.default_rng(9).integers(-255, 256, MAPS.shape)  # exact in bfloat16
    with device.scope({"use_tpu": use_tpu}):
        x = tf.constant(values, tf.bfloat16)
        doubled = resize.double(x)
    expected = values.repeat(2, axis=1).repeat(2, axis=2)
    upstream = np.random.default_rng(10).integers(-63, 64, expected.shape)
    gradient = tf.gradients(doubled, x, tf.constant(upstream, tf.bfloat16))
    found, gradient = session.run([doubled, gradient[0]])
    np.testing.assert_array_equal(found.astype(np.int64), expected)
    sums = upstream.reshape(2, 5, 2, 3, 2, 4).sum(axis=(2, 4))
    np.testing.assert_array_equal(gradient.astype(np.int64), sums)
