"""Subsampling of spectrograms by strided convolutions, in front of a Conformer or Transformer.

Gulati et al. 2020, arXiv:2005.08100, figure 1; Dong et al. 2018 (Speech-Transformer).
"""

from __future__ import annotations

import tensorflow as tf

from models.layers import dense, device
from models.layers.convolution import kernel_of_blocks


def conv_subsampling(x, masks, filters):
    """Two 3x3 convolutions with strides of 2 and ReLU, of a quarter of the frames and bins.

    Both pad one zero on each side, so that frame t covers 2t - 1 to 2t + 1 for even and odd sizes,
    unlike "SAME".

    Args:
      x: float32 or bfloat16 `[batch, frames, bins]`.
      masks: two tensors of the dtype of `x`, `[batch, ceil(frames / 2)]` and
        `[batch, ceil(frames / 4)]`, that the frames of each output are multiplied by.
      filters: number of output channels.

    Returns:
      `[batch, ceil(frames / 4), ceil(bins / 4), filters]`.
    """
    variables = [
        dense.kernel_and_bias(f"subsampling_{i}", [3, 3, channels, filters], x.dtype)
        for i, channels in enumerate((1, filters))
    ]
    if device.is_tpu() and not any(size % 4 for size in x.shape.as_list()[1:]):
        return _subsample_blocks(x, masks, *variables)
    x = x[..., tf.newaxis]
    for (kernel, bias), mask in zip(variables, masks):
        x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
        x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 2, "VALID"), bias))
        x *= mask[:, :, tf.newaxis, tf.newaxis]
    return x


def _subsample_blocks(x, masks, first, second):
    """Computes `conv_subsampling` without strides.

    XLA computes the gradient of a strided convolution as one of a map with zeros between its
    values, and one channel leaves 127 of 128 rows of a matrix unit idle. Here blocks of 4x4 values
    of the spectrogram are 16 channels, and blocks of 2x2 values of the first map are channels, too:
    both convolutions have kernels of 2x2 blocks, the one before and the one at the same place.
    """
    _, frames, bins = x.shape.as_list()
    (kernel, bias), filters = first, first[0].shape.as_list()[-1]
    x = tf.reshape(x, [-1, frames // 4, 4, bins // 4, 4])
    x = tf.reshape(tf.transpose(x, [0, 1, 3, 2, 4]), [-1, frames // 4, bins // 4, 16])
    # Place (i, j) of a block of the first map reads values 2 i - 1 to 2 i + 1 of a block of `x`.
    kernel = tf.reshape(kernel, [3, 3, filters])
    kernels = [
        tf.pad(kernel, [[3 + 2 * i, 2 - 2 * i], [3 + 2 * j, 2 - 2 * j], [0, 0]])
        for i in (0, 1)
        for j in (0, 1)
    ]
    kernel = kernel_of_blocks(tf.reshape(tf.stack(kernels, 2), [8, 8, 1, 4 * filters]), 4)
    x = tf.nn.relu(_convolve_with_one_before(x, kernel) + tf.tile(bias, [4]))
    of_halves = tf.reshape(masks[0], [-1, frames // 4, 2])
    is_first = tf.range(4 * filters) < 2 * filters
    x *= tf.where(is_first, of_halves[..., :1], of_halves[..., 1:])[:, :, tf.newaxis]

    kernel, bias = second
    kernel = kernel_of_blocks(tf.pad(kernel, [[1, 0], [1, 0], [0, 0], [0, 0]]), 2)
    x = tf.nn.relu(_convolve_with_one_before(x, kernel) + bias)
    return x * masks[1][:, :, tf.newaxis, tf.newaxis]


def _convolve_with_one_before(x, kernel):
    return tf.nn.conv2d(x, kernel, 1, [[0, 0], [1, 0], [1, 0], [0, 0]])
