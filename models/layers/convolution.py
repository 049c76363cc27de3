"""Convolutions without a bias, for use before batch norm."""

from __future__ import annotations

import tensorflow as tf

from models.layers import device
from models.layers.normalization import every
from models.layers.strided_convolution import halving_conv2d

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
    with tf.compat.v1.variable_scope(name):
        kernel = conv_kernel(x, filters, kernel_size)
        if dilation > 1 and not device.is_tpu():
            # Gradients of a dilated tf.nn.conv2d have no kernel for a CPU. This one rearranges
            # its input, which costs more than the convolution on a TPU.
            return tf.nn.convolution(x, kernel, strides, "SAME", dilations=dilation)
        if dilation > 1:
            return tf.nn.conv2d(x, kernel, strides, "SAME", dilations=dilation)
        if device.is_tpu() and kernel_size == 1 and strides > 1:
            # For the gradient, as in halving_conv2d.
            return tf.nn.conv2d(every(x, strides), kernel, 1, "SAME")
        if padding == "same" or strides == 1:
            return tf.nn.conv2d(x, kernel, strides, "SAME")
        if device.is_tpu() and _is_halved(x, kernel_size, strides):
            return halving_conv2d(x, kernel, before=1)
        is_stem = kernel_size == 7 and strides == 2 and x.shape.as_list()[-1] <= 4
        is_even = not any(size % 2 for size in x.shape.as_list()[1:3])
        if device.is_tpu() and is_stem and is_even and is_small_batch(x):
            return _convolve_2x2_pixels(x, kernel)
        # oneDNN has no gradients for explicit padding of the convolution: it would be four times
        # as slow on a CPU. XLA fuses the pad into the convolution.
        return tf.nn.conv2d(_pad(x, kernel_size // 2), kernel, strides, "VALID")


def atrous(strides, output_stride):
    """Returns the strides and the dilation of each layer for an output stride of the network.

    Layers that would exceed it have strides of 1, and those that follow are dilated instead (Chen
    et al. 2017, arXiv:1706.05587, section 3.1).

    Args:
      strides: of each layer, 1 or 2.
      output_stride: largest product of the strides.

    Returns:
      `[(strides, dilation)]`.
    """
    found, total, dilation = [], 1, 1
    for stride in strides:
        fits = total * stride <= output_stride
        found.append((stride if fits else 1, dilation))
        if fits:
            total *= stride
        else:
            dilation *= stride
    return found


def conv_kernel(x, filters, kernel_size):
    """Returns the variable `kernel` of `conv2d` in the current variable scope."""
    shape = [kernel_size, kernel_size, x.shape.as_list()[-1], filters]
    return tf.compat.v1.get_variable("kernel", shape, x.dtype, initializer=_INITIALIZER)


def conv2d_with_one_before(x, kernel):
    """7x7 convolution with strides of 2 and "symmetric" padding, and a row and a column before it.

    The max pooling of the stem of a ResNet reads them. Written by the convolution, they cost
    nothing; tf.pad would copy the map.

    Args:
      x: `[batch, height, width, channels]`.
      kernel: `[7, 7, channels, filters]`.

    Returns:
      `[batch, ceil(height / 2) + 1, ceil(width / 2) + 1, filters]`. The values of the first row and
      column are of no use.
    """
    padded = tf.pad(x, [[0, 0], [5, 3], [5, 3], [0, 0]])
    return tf.nn.conv2d(padded, kernel, 2, "VALID")


def _is_halved(x, kernel_size, strides):
    height, width = x.shape.as_list()[1:3]
    return kernel_size == 3 and strides == 2 and height % 2 == width % 2 == 0


def is_small_batch(x):
    """Returns whether the channels of images are along the lanes of a TPU, and leave most idle."""
    batch = x.shape.as_list()[0]
    # From 32 images on, XLA lays out the batch along the lanes.
    return batch is not None and batch < 32


def _convolve_2x2_pixels(x, kernel):
    """7x7 convolution with strides of 2 and "symmetric" padding, as 4x4 one of 2x2 pixels.

    A TPU multiplies 128 channels at a time: four times those of an image take no longer
    (`conv0_space_to_depth` of tensorflow/tpu's ResNet).

    Args:
      x: `[batch, height, width, channels]`; height and width are even.
      kernel: `[7, 7, channels, filters]`.

    Returns:
      `[batch, height / 2, width / 2, filters]`.
    """
    pixels = tf.concat([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], axis=-1)
    blocks = kernel_of_blocks(tf.pad(kernel, [[1, 0], [1, 0], [0, 0], [0, 0]]), 2)
    return tf.nn.conv2d(pixels, blocks, 1, [[0, 0], [2, 1], [2, 1], [0, 0]])


def convolve_4x4_pixels(x, kernel):
    """7x7 convolution with strides of 2 and "symmetric" padding, as 3x3 one of 4x4 pixels.

    The values of 2x2 places of the result are channels: of 64 filters, twice the lanes of a TPU.

    Args:
      x: `[batch, height, width, channels]`; height and width are multiples of 4.
      kernel: `[7, 7, channels, filters]`.

    Returns:
      `[batch, height / 4, width / 4, 4 * filters]`, the filters of the upper left, upper right,
      lower left and lower right place.
    """
    pixels = tf.concat([x[:, i::4, j::4] for i in range(4) for j in range(4)], axis=-1)
    # Place i reads the pixels from 2 i - 3 on, in blocks whose first pixel is -4.
    blocks = kernel_of_blocks(_kernels_of_places(kernel, [[1, 4], [3, 2]]), 4)
    return tf.nn.conv2d(pixels, blocks, 1, "SAME")


def convolve_blocks(blocks, kernels):
    """3x3 convolution of maps whose channels are those of 2x2 pixels.

    A TPU computes 128 channels at a time, and its memory holds them in full: of a map with 16
    channels seven eighths are padding.

    Args:
      blocks: `[batch, height / 2, width / 2, 4 * channels]`, from `tf.nn.space_to_depth`.
      kernels: `[3, 3, channels, filters]` for each map; the results are added.

    Returns:
      `[batch, height / 2, width / 2, 4 * filters]`.
    """
    # Place i reads the pixels from i - 1 on, in blocks whose first pixel is -2.
    kernels = [
        kernel_of_blocks(_kernels_of_places(kernel, [[1, 2], [2, 1]]), 2) for kernel in kernels
    ]
    return tf.nn.conv2d(tf.concat(blocks, -1), tf.concat(kernels, 2), 1, "SAME")


def _kernels_of_places(kernel, around):
    """Returns one kernel with the filters of several places, among zeros.

    Args:
      kernel: `[kernel_size, kernel_size, channels, filters]`.
      around: of each place along a side, the zeros before the kernel and after it.

    Returns:
      `[side, side, channels, len(around) ** 2 * filters]`, places row by row.
    """
    kernels = [
        tf.pad(kernel, [rows, columns, [0, 0], [0, 0]]) for rows in around for columns in around
    ]
    side, _, channels, filters = kernels[0].shape.as_list()
    return tf.reshape(tf.stack(kernels, 3), [side, side, channels, len(kernels) * filters])


def kernel_of_blocks(kernel, size):
    """Returns the kernel of a convolution of blocks of values, whose channels are the values.

    Args:
      kernel: `[kernel_size, kernel_size, channels, filters]`, of values.
      size: height and width of a block, a divisor of kernel_size.

    Returns:
      `[kernel_size / size, kernel_size / size, size * size * channels, filters]`.
    """
    blocks, (channels, filters) = kernel.shape.as_list()[0] // size, kernel.shape.as_list()[2:]
    kernel = tf.reshape(kernel, [blocks, size, blocks, size, channels, filters])
    kernel = tf.transpose(kernel, [0, 2, 1, 3, 4, 5])
    return tf.reshape(kernel, [blocks, blocks, size * size * channels, filters])


def _pad(x, size):
    return tf.pad(x, [[0, 0], [size, size], [size, size], [0, 0]])


def depthwise_conv2d(x, strides=1, padding="same", name="depthwise", dilation=1, kernel_size=3):
    """Depthwise convolution.

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels]`.
      strides: stride along both dimensions, 1 or 2.
      padding: "same"; or "after", for 3x3 kernels and strides of 2, which pads one zero after the
        last row and column, but a dimension of size 1 as "same" does.
      name: variable scope of `depthwise_kernel`, `[kernel_size, kernel_size, channels, 1]`.
      dilation: see `conv2d`.
      kernel_size: height and width of the kernel, odd.

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
        stddev = (2 / kernel_size**2) ** 0.5  # the fan-out is that of one channel
        kernel = tf.compat.v1.get_variable(
            "depthwise_kernel",
            [kernel_size, kernel_size, x.shape.as_list()[-1], 1],
            x.dtype,
            initializer=tf.compat.v1.random_normal_initializer(stddev=stddev),
        )
        rates = None if dilation == 1 else [dilation, dilation]
        return tf.nn.depthwise_conv2d(
            x, kernel, [1, strides, strides, 1], padding.upper(), dilations=rates
        )
