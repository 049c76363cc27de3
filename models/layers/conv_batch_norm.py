"""Convolution with batch norm, as one layer, and the stem of a ResNet.

A TPU spends most of a training step of a ResNet on reading and writing feature maps. In training
both functions compute the statistics of a map from smaller ones where that is faster, so that the
map is written to memory once, normalized, and is not kept for the backward pass.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from models.layers import device, normalization
from models.layers.convolution import (
    conv2d,
    conv2d_with_one_before,
    conv_kernel,
    convolve_4x4_pixels,
    convolve_blocks,
    is_small_batch,
)
from models.layers.normalization import every
from models.layers.strided_convolution import LANES

_AXES = [0, 1, 2]  # batch, height, width


def conv2d_batch_norm(
    x,
    filters,
    kernel_size,
    params,
    training,
    strides=1,
    padding="same",
    dilation=1,
    names=("conv", "batch_norm"),
    zero_gamma=False,
    keeps_every=1,
    activation=None,
):
    """2-D convolution without a bias, and batch norm.

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels]`, the per-replica batch; or a list of
        maps of one size, whose channels are concatenated.
      filters: number of output channels.
      kernel_size: height and width of the kernel, odd.
      params: see `normalization.default_params`.
      training: see `normalization.batch_norm`.
      strides: see `convolution.conv2d`.
      padding: see `convolution.conv2d`.
      dilation: see `convolution.conv2d`.
      names: variable scopes of the convolution and of batch norm.
      zero_gamma: see `normalization.batch_norm`.
      keeps_every: 2 returns every second row and column; the statistics are those of all.
      activation: function of each value of the result; None for the identity.

    Returns:
      `[batch, new_height, new_width, filters]`, of the dtype of `x`; a side is divided by strides
      and keeps_every, rounded up.
    """
    conv_name, norm_name = names
    maps = x if isinstance(x, list) else [x]
    x = tf.concat(maps, -1) if len(maps) > 1 else maps[0]
    trained = device.is_tpu() and normalization.is_trained_from_sums(params, training, norm_name)
    is_plain = kernel_size == 3 and strides == dilation == keeps_every == 1
    # XLA removes the conversions between two such layers if the activation is not between them.
    if trained and activation and is_plain and _has_few_channels(x, filters):
        with tf.compat.v1.variable_scope(conv_name):
            kernel = conv_kernel(x, filters, 3)
        kernels = tf.split(kernel, [part.shape.as_list()[-1] for part in maps], axis=2)
        y = convolve_blocks([tf.nn.space_to_depth(part, 2) for part in maps], kernels)
        variables = normalization.batch_norm_variables(norm_name, filters, zero_gamma)
        y = normalization.normalize_batch(y, variables, params, tf.identity, groups=4)
        return tf.nn.depth_to_space(activation(y), 2)
    activation = activation or (lambda y: y)
    if device.is_tpu() and kernel_size == 1:
        x, strides = every(x, strides), 1  # as conv2d does
        if trained and _is_large_expansion(x, filters):
            with tf.compat.v1.variable_scope(conv_name):
                kernel = conv_kernel(x, filters, 1)
            variables = normalization.batch_norm_variables(norm_name, filters, zero_gamma)
            return activation(_normalized_product(x, kernel, variables, params, keeps_every))
    x = conv2d(x, filters, kernel_size, strides, padding, conv_name, dilation)
    x = normalization.batch_norm(x, params, training, norm_name, zero_gamma, keeps_every)
    return activation(x)


def _has_few_channels(x, filters):
    """Returns whether the products with zeros of `convolve_blocks` cost less than idle lanes."""
    _, height, width, channels = x.shape.as_list()
    is_even = None not in (height, width) and height % 2 == width % 2 == 0
    leaves_lanes_idle = 4 * filters <= LANES and 2 * channels <= LANES
    return is_even and is_small_batch(x) and leaves_lanes_idle


def _is_large_expansion(x, filters):
    """Returns whether the products of channels cost less than the traffic that they save."""
    batch, height, width, channels = x.shape.as_list()
    sizes = batch, height, width
    return filters >= 4 * channels and None not in sizes and np.prod(sizes) >= 8 * channels


def _normalized_product(x, kernel, variables, params, keeps_every):
    """Computes a 1x1 `conv2d_batch_norm` from the mean and the covariance of `x`.

    With weights W, the convolution y = x W has the mean E[x] W and the variances of the diagonal of
    W^T Cov[x] W. The gradient of batch norm is linear in y, and so is computed from x too.
    """
    channels = x.shape[-1]
    reduce, num_replicas = normalization.replica_sum(params)
    num_values = tf.cast(tf.size(x) // channels, tf.float32)
    count = num_values * num_replicas
    shift = variables.moving_mean.read_value()

    @tf.custom_gradient
    def normalize(x, kernel, gamma, beta):
        weights = tf.cast(kernel[0, 0], tf.float32)
        x_mean = tf.reduce_mean(tf.cast(x, tf.float32), _AXES)
        covariance = _product(x, x) / num_values - _outer(x_mean, x_mean)
        xy_covariance = _multiply(covariance, weights)
        own_mean = tf.reduce_sum(x_mean[:, tf.newaxis] * weights, 0)
        own_variance = tf.reduce_sum(weights * xy_covariance, 0)
        # Over all replicas; less the moving mean, because E[y^2] - E[y]^2 would cancel.
        offset = own_mean - shift
        sums = reduce(tf.stack([offset, own_variance + offset**2])) / num_replicas
        mean = sums[0] + shift
        variance = own_variance if num_replicas == 1 else sums[1] - sums[0] ** 2
        variance = tf.maximum(variance, 0)
        inverse = tf.math.rsqrt(variance + params["batch_norm_epsilon"])
        scale = gamma * inverse
        kept = every(x, keeps_every)
        y = tf.cast(tf.nn.conv2d(kept, kernel, 1, "VALID"), tf.float32)
        normalized = tf.cast(y * scale + (beta - mean * scale), x.dtype)

        def gradient(upstream, *statistics_gradients):
            del statistics_gradients
            upstream_sum = tf.reduce_sum(tf.cast(upstream, tf.float32), _AXES)
            product = _product(kept, upstream)
            # Of upstream and y - mean.
            product_sum = tf.reduce_sum(weights * (product - _outer(x_mean, upstream_sum)), 0)
            product_sum += (own_mean - mean) * upstream_sum
            all_sums = reduce(tf.stack([upstream_sum, product_sum]))
            # The gradient of y is upstream * scale + (y - mean) * slope + constant.
            slope = -scale * inverse**2 * all_sums[1] / count
            constant = -scale * all_sums[0] / count
            scaled = tf.cast(tf.cast(upstream, tf.float32) * scale, x.dtype)
            transposed = tf.transpose(kernel, [0, 1, 3, 2])
            kept_gradient = tf.nn.conv2d(scaled, transposed, 1, "VALID")
            (x_gradient,) = tf.gradients(kept, x, kept_gradient)
            through_y = tf.matmul(weights * slope, weights, transpose_b=True)
            through_y = tf.cast(through_y[tf.newaxis, tf.newaxis], x.dtype)
            x_gradient = tf.cast(x_gradient, tf.float32)
            x_gradient += tf.cast(tf.nn.conv2d(x, through_y, 1, "VALID"), tf.float32)
            x_gradient += tf.linalg.matvec(weights, constant - mean * slope)
            kernel_gradient = product * scale + num_values * (
                xy_covariance * slope + _outer(x_mean, (own_mean - mean) * slope + constant)
            )
            return (
                tf.cast(x_gradient, x.dtype),
                tf.cast(kernel_gradient[tf.newaxis, tf.newaxis], kernel.dtype),
                product_sum * inverse,
                upstream_sum,
            )

        return (normalized, mean, variance), gradient

    normalized, mean, variance = normalize(
        x, kernel, variables.gamma.read_value(), variables.beta.read_value()
    )
    normalization.update_moving_averages(variables, mean, variance, count, params)
    return normalized


def _product(a, b):
    """Returns the sum over batch, height and width of the outer products, float32."""
    a, b = tf.cast(a, tf.float32), tf.cast(b, tf.float32)
    shape = [1, 1, a.shape[-1], b.shape[-1]]
    return tf.compat.v1.nn.conv2d_backprop_filter(a, shape, b, [1, 1, 1, 1], "VALID")[0, 0]


def _outer(a, b):
    return a[:, tf.newaxis] * b


def _multiply(a, b):
    """Returns the matrix product of float32 `a`, exact to its last bits, and `b`.

    A TPU rounds the factors of a product to bfloat16. `a` is the sum of three parts of 8 bits.
    """
    total = 0.0
    for _ in range(3):
        bits = tf.bitwise.bitwise_and(tf.bitcast(a, tf.int32), -(1 << 16))
        part = tf.bitcast(bits, tf.float32)  # casts to bfloat16 and back would be removed by XLA
        total += tf.matmul(part, b)
        a -= part
    return total


def stem(x, filters, params, training, needs_map):
    """Stem of a ResNet: 7x7 convolution with strides of 2, batch norm, ReLU and 3x3 max pooling.

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels]`, the per-replica batch.
      filters: number of output channels.
      params: see `normalization.default_params`.
      training: see `normalization.batch_norm`.
      needs_map: True for a result with the map before max pooling.

    Returns:
      `[batch, ceil(height / 4), ceil(width / 4), filters]` and
      `[batch, ceil(height / 2), ceil(width / 2), filters]`, of the dtype of `x`; the second is None
      where neither needed nor computed.
    """
    _, height, width, _ = x.shape.as_list()
    has_size = None not in (height, width) and height % 4 == width % 4 == 0
    trained = normalization.is_trained_from_sums(params, training, "batch_norm")
    if trained and device.is_tpu() and has_size and not needs_map:
        return _pooled_before_norm(x, filters, params), None
    x = conv2d_batch_norm(x, filters, 7, params, training, strides=2, padding="symmetric")
    before = tf.nn.relu(x)
    # ReLU after max pooling, on a quarter of the values: it commutes with the maximum and keeps the
    # zeros of the padding. XLA does not support pooling with explicit padding.
    x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
    return tf.nn.relu(tf.nn.max_pool2d(x, 3, 2, "VALID")), before


def _pooled_before_norm(x, filters, params):
    """Computes the output of `stem`: batch norm after max pooling, of a quarter of the values."""
    with tf.compat.v1.variable_scope("conv"):
        kernel = conv_kernel(x, filters, 7)
    variables = normalization.batch_norm_variables("batch_norm", filters)
    # Batch norm commutes with max pooling if it does not reverse the order of the values.
    sign = tf.where(variables.gamma.read_value() < 0, -1.0, 1.0)
    kernel = kernel * tf.cast(sign, kernel.dtype)
    if is_small_batch(x):
        y = convolve_4x4_pixels(x, kernel)
        y = normalization.normalize_batch(y, variables, params, _pool_blocks, sign=sign, groups=4)
        return tf.nn.relu(y)
    y = conv2d_with_one_before(x, kernel)
    inside = np.ones([*y.shape.as_list()[1:3], 1], bool)
    inside[0], inside[:, 0] = False, False
    y = tf.where(inside, y, y.dtype.min)

    def pool(y):
        return tf.nn.max_pool2d(y, 3, 2, "VALID")

    return tf.nn.relu(normalization.normalize_batch(y, variables, params, pool, inside, sign))


def _pool_blocks(y):
    """3x3 max pooling with strides of 2 and a row and a column before, of 2x2 places as channels.

    Of equal values the first one of a window gets the gradient, as in `tf.nn.max_pool2d`.
    """

    def shifted(values, axis):
        """Returns the values one block before along an axis, the lowest number before the first."""
        before = [[0, 0]] * 4
        before[axis] = [1, 0]
        padded = tf.pad(values, before, constant_values=values.dtype.min)
        return padded[:, :-1] if axis == 1 else padded[:, :, :-1]

    def largest(first, second, axis):
        return tf.maximum(tf.maximum(shifted(second, axis), first), second)

    upper_left, upper_right, lower_left, lower_right = tf.split(y, 4, axis=-1)
    upper, lower = largest(upper_left, upper_right, 2), largest(lower_left, lower_right, 2)
    return largest(upper, lower, 1)
