"""Convolutions with strides of 2, and their transposes, which double height and width.

XLA computes a transposed convolution, and the gradient of a strided one, as a convolution of a map
with zeros between its values. For a result of few channels, such as an image, both are here on a
TPU a convolution without strides that computes, as channels, each 2x2 pixels of the result (Shi et
al. 2016, arXiv:1609.07009). With more channels, which fill the lanes of a TPU, it is not faster:
the result has to be rearranged, and so has the kernel.
"""

from __future__ import annotations

import tensorflow as tf

from models.layers import device

LANES = 128  # channels that a TPU computes at a time


def halving_conv2d(x, kernel, before=None):
    """Convolution with strides of 2.

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels]`.
      kernel: `[kernel_size, kernel_size, channels, filters]`.
      before: zeros to pad before the first row and column of even sides, with the form for a TPU;
        default: "SAME", of any sides, in the form that is faster.

    Returns:
      `[batch, ceil(height / 2), ceil(width / 2), filters]`.
    """
    is_odd = any(side % 2 for side in x.shape.as_list()[1:3])
    if before is None and (is_odd or not _leaves_lanes_idle(x.shape.as_list()[-1])):
        return tf.nn.conv2d(x, kernel, 2, "SAME")
    before = _before(kernel) if before is None else before
    around = [before, max(0, kernel.shape.as_list()[0] - 2 - before)]

    @tf.custom_gradient
    def convolved(x, kernel):
        padded = tf.pad(x, [[0, 0], around, around, [0, 0]])

        def gradient(upstream):
            kernel_gradient = tf.compat.v1.nn.conv2d_backprop_filter(
                padded, kernel.shape, upstream, [1, 2, 2, 1], "VALID"
            )
            return _transposed(upstream, kernel, before), kernel_gradient

        return tf.nn.conv2d(padded, kernel, 2, "VALID"), gradient

    return convolved(x, tf.convert_to_tensor(kernel))


def doubling_conv2d(x, kernel):
    """Transposed convolution with strides of 2, the gradient of one with padding "SAME".

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels]`.
      kernel: `[kernel_size, kernel_size, filters, channels]`.

    Returns:
      `[batch, 2 * height, 2 * width, filters]`.
    """
    _, height, width, _ = x.shape.as_list()
    if not _leaves_lanes_idle(kernel.shape.as_list()[2]):
        size = [tf.shape(x)[0], 2 * height, 2 * width, kernel.shape.as_list()[2]]
        return tf.nn.conv2d_transpose(x, kernel, size, 2, "SAME")
    if kernel.shape.as_list()[0] == 2:  # no two pixels share a value, so its gradient is as fast
        return _transposed(x, tf.convert_to_tensor(kernel), _before(kernel))

    @tf.custom_gradient
    def convolved(x, kernel):
        def gradient(upstream):
            kernel_gradient = tf.compat.v1.nn.conv2d_backprop_filter(
                upstream, kernel.shape, x, [1, 2, 2, 1], "SAME"
            )
            return tf.nn.conv2d(upstream, kernel, 2, "SAME"), kernel_gradient

        return _transposed(x, kernel, _before(kernel)), gradient

    return convolved(x, tf.convert_to_tensor(kernel))


def _leaves_lanes_idle(channels):
    return device.is_tpu() and 4 * channels <= LANES


def _before(kernel):
    """Returns the zeros that "SAME" pads before an even side for strides of 2."""
    return max(0, (kernel.shape.as_list()[0] - 2) // 2)


def _transposed(x, kernel, before):
    """Computes the transposed convolution of `x` by blocks of 2x2 pixels.

    Pixel `2 i + p` of a column of the result is the sum over the pixels `i + o` of `x` with value
    `before + p - 2 o` of the kernel: pairs of values, p = 0 and 1, for each o.

    Args:
      x: `[batch, height, width, channels]`.
      kernel: `[kernel_size, kernel_size, filters, channels]`.
      before: zeros that the convolution pads before the first row and column.

    Returns:
      `[batch, 2 * height, 2 * width, filters]`.
    """
    size, _, filters, channels = kernel.shape.as_list()
    last = -(-before // 2)  # the largest o
    first_value = before - 2 * last  # 0 or -1
    pairs = -((first_value - size) // 2)
    zeros = [-first_value, first_value + 2 * pairs - size]
    blocks = tf.pad(kernel, [zeros, zeros, [0, 0], [0, 0]])
    blocks = tf.reshape(blocks, [pairs, 2, pairs, 2, filters, channels])
    blocks = tf.transpose(tf.reverse(blocks, [0, 2]), [0, 2, 5, 1, 3, 4])
    blocks = tf.reshape(blocks, [pairs, pairs, channels, 4 * filters])
    around = [pairs - 1 - last, last]
    y = tf.nn.conv2d(x, blocks, 1, [[0, 0], around, around, [0, 0]])
    return tf.nn.depth_to_space(y, 2)
