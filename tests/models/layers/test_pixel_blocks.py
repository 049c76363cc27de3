"""Maps of pixels as blocks of 2x2 pixels and back, and the layer that doubles a map."""

import numpy as np
import pytest
import tensorflow as tf

from models.layers import device, pixel_blocks
from tests import numerics

RANDOM = np.random.default_rng(5)


def test_channels_of_a_block_are_its_pixels_row_by_row(session):
    x = np.arange(2 * 4 * 6 * 3, dtype=np.float32).reshape(2, 4, 6, 3)
    blocks = pixel_blocks.from_pixels(tf.constant(x))
    expected = np.concatenate([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], axis=-1)
    found, back = session.run([blocks, pixel_blocks.to_pixels(blocks)])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("use_tpu", [False, True])
def test_doubling_is_a_transposed_convolution(session, use_tpu):
    x = RANDOM.normal(size=[3, 5, 7, 6]).astype(np.float32)
    with device.scope({"use_tpu": use_tpu}):
        y = pixel_blocks.double_by_convolution(tf.constant(x), 4, "up")
    (kernel,) = tf.compat.v1.trainable_variables()
    assert kernel.op.name == "up/kernel"
    session.run(kernel.initializer)
    found, weights = session.run([y, kernel])
    expected = np.einsum("bhwc,ijfc->bhiwjf", x, weights.astype(np.float64)).reshape(3, 10, 14, 4)
    numerics.assert_close(found, expected, terms=6, depth=1, magnitude=np.abs(expected).max())
