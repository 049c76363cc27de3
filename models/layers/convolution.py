"""Convolutions without a bias, for use before batch norm."""

from __future__ import annotations

import tensorflow as tf

from models.layers import device

# He initialization by fan-out (He et al. 2015, arXiv:1502.01852): keeps the norm of gradients.
_INITIALIZER = tf.compat.v1.variance_scaling_initializer(2.0, "fan_out", "untruncated_normal")


def conv2d(x, filters, kernel_size, strides=1, padding="same", name="conv", dilation=1):
    """2-D convolution.

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels]`.
      filters: number of output channels.
      kernel_size: height and width of the kernel, odd.
      strides: stride along both dimensions.
      padding: "same" as in TensorFlow; "symmetric" pads `kernel_size // 2` zeros on each side, as
        in the original ResNets.
      name: variable scope of `kernel`, `[kernel_size, kernel_size, channels, filters]`.
      dilation: distance between the inputs of the kernel, with strides of 1 only (atrous
        convolution, Chen et al. 2017, arXiv:1706.05587).

    Returns:
      `[batch, ceil(height / strides), ceil(width / strides), filters]`, of the dtype of `x`.
    """
    shape = [kernel_size, kernel_size, x.shape.as_list()[-1], filters]
    with tf.compat.v1.variable_scope(name):
        kernel = tf.compat.v1.get_variable("kernel", shape, x.dtype, initializer=_INITIALIZER)
        if dilation > 1 and not device.is_tpu():
            # Gradients of a dilated tf.nn.conv2d have no kernel for a CPU. This one rearranges
            # its input, which costs more than the convolution on a TPU.
            return tf.nn.convolution(x, kernel, strides, "SAME", dilations=dilation)
        if dilation > 1:
            return tf.nn.conv2d(x, kernel, strides, "SAME", dilations=dilation)
        if padding == "same" or strides == 1:
            return tf.nn.conv2d(x, kernel, strides, "SAME")
        # oneDNN has no gradients for explicit padding of the convolution: it would be four times
        # as slow on a CPU. XLA fuses the pad into the convolution.
        half = kernel_size // 2
        x = tf.pad(x, [[0, 0], [half, half], [half, half], [0, 0]])
        return tf.nn.conv2d(x, kernel, strides, "VALID")


def depthwise_conv2d(x, strides=1, padding="same", name="depthwise", dilation=1):
    """3x3 depthwise convolution.

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels]`.
      strides: stride along both dimensions, 1 or 2.
      padding: "same"; or "after", for strides of 2, which pads one zero after the last row and
        column, but a dimension of size 1 as "same" does.
      name: variable scope of `depthwise_kernel`, `[3, 3, channels, 1]`.
      dilation: see `conv2d`.

    Returns:
      `[batch, new_height, new_width, channels]`, of the dtype of `x`.
    """
    if padding == "after":
        padding = "same"  # the same for even sizes
        sizes = x.shape.as_list()[1:3]
        if any(size % 2 and size > 1 for size in sizes):
            # Few runtimes support explicit padding of the convolution.
            zeros = [[1, 1] if size == 1 else [0, 1] for size in sizes]
            x = tf.pad(x, [[0, 0], *zeros, [0, 0]])
            padding = "valid"
    with tf.compat.v1.variable_scope(name):
        # The fan-out of a depthwise 3x3 kernel is 9.
        kernel = tf.compat.v1.get_variable(
            "depthwise_kernel",
            [3, 3, x.shape.as_list()[-1], 1],
            x.dtype,
            initializer=tf.compat.v1.random_normal_initializer(stddev=(2 / 9) ** 0.5),
        )
        rates = None if dilation == 1 else [dilation, dilation]
        return tf.nn.depthwise_conv2d(
            x, kernel, [1, strides, strides, 1], padding.upper(), dilations=rates
        )
