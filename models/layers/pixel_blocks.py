"""Maps of few channels as blocks of 2x2 pixels, whose channels are those of the four pixels.

A TPU computes 128 channels at a time, and its memory holds them in full: of a map with 16 channels
seven eighths are padding. XLA removes the conversion of a result to pixels if what follows
converts it to blocks.
"""

from __future__ import annotations

import tensorflow as tf

from models.layers import device

# By fan-in: each pixel of the result has one product with each channel.
_INITIALIZER = tf.compat.v1.variance_scaling_initializer(2.0, "fan_in", "untruncated_normal")


def from_pixels(x):
    """Converts `[batch, height, width, channels]`, of even sides.

    Returns:
      `[batch, height / 2, width / 2, 4 * channels]`: upper left, upper right, lower left, lower
      right pixel.
    """
    _, height, width, channels = x.shape.as_list()
    x = tf.reshape(x, [-1, height // 2, 2, width // 2, 2, channels])
    x = tf.transpose(x, [0, 1, 3, 2, 4, 5])
    return tf.reshape(x, [-1, height // 2, width // 2, 4 * channels])


def to_pixels(blocks):
    """Converts the result of `from_pixels` back."""
    _, height, width, channels = blocks.shape.as_list()
    x = tf.reshape(blocks, [-1, height, width, 2, 2, channels // 4])
    x = tf.transpose(x, [0, 1, 3, 2, 4, 5])
    return tf.reshape(x, [-1, 2 * height, 2 * width, channels // 4])


def double_by_convolution(x, filters, name):
    """Transposed 2x2 convolution with strides of 2, without a bias.

    Args:
      x: `[batch, height, width, channels]`.
      filters: output channels.
      name: variable scope of `kernel`, `[2, 2, filters, channels]`.

    Returns:
      `[batch, 2 * height, 2 * width, filters]`.
    """
    _, height, width, channels = x.shape.as_list()
    with tf.compat.v1.variable_scope(name):
        kernel = tf.compat.v1.get_variable(
            "kernel", [2, 2, filters, channels], x.dtype, initializer=_INITIALIZER
        )
    if device.is_tpu():
        kernel = tf.reshape(tf.transpose(kernel, [3, 0, 1, 2]), [1, 1, channels, 4 * filters])
        return to_pixels(tf.nn.conv2d(x, kernel, 1, "VALID"))
    size = [tf.shape(x)[0], 2 * height, 2 * width, filters]
    return tf.nn.conv2d_transpose(x, kernel, size, 2, "VALID")
