"""Convolutions without a bias, to be followed by batch norm, which has one."""

from __future__ import annotations

import tensorflow as tf

# He et al. 2015 (arXiv:1502.01852) by fan-out, so that gradients keep their size.
_INITIALIZER = tf.compat.v1.variance_scaling_initializer(2.0, "fan_out", "untruncated_normal")


def conv2d(x, filters, kernel_size, strides=1, padding="same", name="conv"):
    """Convolves `x`, `[batch, height, width, channels]` in float32 or bfloat16.

    Args:
      x: the images or features.
      filters: channels of the result.
      kernel_size: odd, height and width.
      strides: of both dimensions.
      padding: "same" puts the odd zero of a strided convolution after the image, as TensorFlow
        does; "symmetric" puts `kernel_size // 2` zeros on every side, as ResNets were defined.
      name: of the variable scope, which holds `kernel`.

    Returns:
      `[batch, ceil(height / strides), ceil(width / strides), filters]`, of the type of `x`.
    """
    shape = [kernel_size, kernel_size, x.shape.as_list()[-1], filters]
    with tf.compat.v1.variable_scope(name):
        kernel = tf.compat.v1.get_variable("kernel", shape, x.dtype, initializer=_INITIALIZER)
        if padding == "same" or strides == 1:
            return tf.nn.conv2d(x, kernel, strides, "SAME")
        # Not the padding of the convolution itself, whose gradients oneDNN has not: four times as
        # slow on a CPU. XLA makes one of the two.
        half = kernel_size // 2
        x = tf.pad(x, [[0, 0], [half, half], [half, half], [0, 0]])
        return tf.nn.conv2d(x, kernel, strides, "VALID")


def depthwise_conv2d(x, strides=1, padding="same", name="depthwise"):
    """Convolves each channel of `x` with a 3x3 kernel of its own.

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels]`.
      strides: of both dimensions, 1 or 2.
      padding: "same", or, of strides 2, "after": one zero after each row and column, whatever
        their number; what is a single row or column is padded as "same" does.
      name: of the variable scope, which holds `depthwise_kernel`.

    Returns:
      A tensor with as many channels, of the type of `x`.
    """
    if padding == "after":
        padding = "same"  # which treats even sizes alike
        sizes = x.shape.as_list()[1:3]
        if any(size % 2 and size > 1 for size in sizes):
            # Not the padding of the convolution itself, which few runtimes know.
            zeros = [[1, 1] if size == 1 else [0, 1] for size in sizes]
            x = tf.pad(x, [[0, 0], *zeros, [0, 0]])
            padding = "valid"
    with tf.compat.v1.variable_scope(name):
        # Fan-out of a 3x3 kernel whose channels do not mix: 9, whatever their number.
        kernel = tf.compat.v1.get_variable(
            "depthwise_kernel",
            [3, 3, x.shape.as_list()[-1], 1],
            x.dtype,
            initializer=tf.compat.v1.random_normal_initializer(stddev=(2 / 9) ** 0.5),
        )
        return tf.nn.depthwise_conv2d(x, kernel, [1, strides, strides, 1], padding.upper())
