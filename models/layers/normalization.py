"""Batch norm, per replica or cross-replica, and layer norm."""

from __future__ import annotations

import dataclasses
import re

import tensorflow as tf

from models.layers import device, fusion
from models.model import check_fractions, check_positive

_FEW = 8  # values that a CPU adds one after the other


@dataclasses.dataclass(frozen=True)
class BatchNormVariables:
    """Variables of a batch norm layer, float32 `[channels]`."""

    gamma: tf.Variable
    beta: tf.Variable
    moving_mean: tf.Variable
    moving_variance: tf.Variable


def default_params(momentum=0.9, epsilon=1e-3):
    """Returns the hyperparameters of `batch_norm`."""
    return {
        "batch_norm_momentum": momentum,  # of the moving mean and variance
        "batch_norm_epsilon": epsilon,
        "batch_norm_cross_replica": False,  # statistics of the global batch (sync batch norm)
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_fractions(params, "batch_norm_momentum")
    check_positive(params, "batch_norm_epsilon")


def batch_norm(x, params, training, name="batch_norm", zero_gamma=False, strides=1):
    """Batch normalization of each channel (Ioffe and Szegedy 2015, arXiv:1502.03167).

    A layer whose gamma does not match the hyperparameter `trainable` is frozen: it uses its moving
    averages in training too, and does not update them.

    Args:
      x: float32 or bfloat16 `[batch, ..., channels]`, the per-replica batch.
      params: see `default_params`. With `batch_norm_cross_replica` mean and variance are those of
        the global batch, at the cost of an all-reduce; otherwise of the per-replica batch, and the
        moving averages are those of replica 0.
      training: True uses batch statistics and updates the moving averages (`UPDATE_OPS`).
      name: variable scope of gamma, beta, moving_mean and moving_variance, each `[channels]`.
      zero_gamma: True initializes gamma to 0 instead of 1.
      strides: returns every `strides`-th row and column; the statistics are those of all.

    Returns:
      A tensor of the shape and dtype of `x`; with strides
      `[batch, ceil(height / strides), ceil(width / strides), channels]`.
    """
    if is_trained_from_sums(params, training, name):
        variables = batch_norm_variables(name, x.shape[-1], zero_gamma)
        return normalize_batch(x, variables, params, lambda x: every(x, strides))
    normalized = tf.compat.v1.layers.batch_normalization(
        x,
        momentum=params["batch_norm_momentum"],
        epsilon=params["batch_norm_epsilon"],
        gamma_initializer=tf.zeros_initializer() if zero_gamma else tf.ones_initializer(),
        training=training and not _is_frozen(params, name),
        name=name,
    )
    return every(normalized, strides)


def layer_norm(x, name="layer_norm", epsilon=1e-6, variables=("gamma", "beta")):
    """Layer normalization of the last axis (Ba et al. 2016, arXiv:1607.06450), in float32.

    Args:
      x: float32 or bfloat16 `[..., channels]`.
      name: variable scope of gamma and beta, each `[channels]`.
      epsilon: added to the variance.
      variables: names of gamma and beta, such as those of another program's checkpoints.

    Returns:
      A tensor of the shape and dtype of `x`.
    """
    with tf.compat.v1.variable_scope(name):
        gamma = _variable(variables[0], x.shape[-1], tf.ones_initializer(), trainable=True)
        beta = _variable(variables[1], x.shape[-1], tf.zeros_initializer(), trainable=True)
    gamma, beta = gamma.read_value(), beta.read_value()
    if device.current().fuses:
        return _fused_layer_norm(x, gamma, beta, epsilon)
    values = tf.cast(x, tf.float32)
    if device.is_tpu():  # XLA fuses it with what computes x. Less exact for values far from 0.
        mean = tf.reduce_mean(values, -1, keepdims=True)
        mean_square = tf.reduce_mean(tf.square(values), -1, keepdims=True)
        variance = tf.maximum(mean_square - tf.square(mean), 0.0)
    else:
        mean, variance = tf.nn.moments(values, [-1], keepdims=True)
    normalized = tf.nn.batch_normalization(values, mean, variance, beta, gamma, epsilon)
    return tf.cast(normalized, x.dtype)


def _fused_layer_norm(x, gamma, beta, epsilon):
    """Computes `layer_norm` on a CPU, in one kernel; its gradient in one kernel and two sums.

    The gradients of gamma and beta are sums over the rows, for which TensorFlow has faster kernels
    than XLA.
    """

    @tf.custom_gradient
    def normalized(x, gamma, beta):
        def gradient(upstream):
            inputs = upstream, x, gamma
            x_gradient, scaled = fusion.compiled(_layer_norm_gradient, epsilon=epsilon)(*inputs)
            rows = scaled, tf.cast(upstream, tf.float32)
            return x_gradient, *(tf.raw_ops.BiasAddGrad(out_backprop=of) for of in rows)

        return fusion.compiled(_scale_and_shift, epsilon=epsilon)(x, gamma, beta), gradient

    return normalized(x, gamma, beta)


def _scale_and_shift(x, gamma, beta, epsilon):
    normalized, _ = _normalize_rows(tf.cast(x, tf.float32), epsilon)
    return tf.cast(normalized * gamma + beta, x.dtype)


def _layer_norm_gradient(upstream, x, gamma, epsilon):
    """Returns the gradient of `x`, and `upstream * normalized` in float32."""
    normalized, inverse = _normalize_rows(tf.cast(x, tf.float32), epsilon)
    upstream = tf.cast(upstream, tf.float32)
    scaled, of_normalized = upstream * normalized, upstream * gamma
    mean, covariance = _row_means(of_normalized), _row_means(scaled * gamma)
    x_gradient = inverse * (of_normalized - mean - normalized * covariance)
    return tf.cast(x_gradient, x.dtype), scaled


def _normalize_rows(values, epsilon):
    """Returns the values with mean 0 and variance 1 in each row, and 1 / standard deviation."""
    centered = values - _row_means(values)
    inverse = tf.math.rsqrt(_row_means(tf.square(centered)) + epsilon)
    return centered * inverse, inverse


def _row_means(values):
    """Returns the means of the last axis, `[..., 1]`.

    XLA for a CPU adds one value of a row after the other, but halves of rows as vectors.
    """
    size = width = values.shape.as_list()[-1]
    while width > _FEW and width % 2 == 0:
        width //= 2
        values = values[..., :width] + values[..., width:]
    return tf.reduce_sum(values, -1, keepdims=True) / size


def _is_frozen(params, name):
    """Returns whether the hyperparameter `trainable` excludes the layer called `name`."""
    scope = tf.compat.v1.get_variable_scope().name
    gamma = "/".join(filter(None, (scope, name, "gamma")))
    return not re.fullmatch(params.get("trainable", ".*"), gamma)


def is_trained_from_sums(params, training, name):
    """Returns whether the layer called `name` is trained with `normalize_batch`."""
    here = device.current()
    shares = params["batch_norm_cross_replica"] and here.num_replicas > 1
    return training and not _is_frozen(params, name) and (shares or here.is_tpu)


def batch_norm_variables(name, channels, zero_gamma=False):
    """Returns the variables of a layer in the scope `name`; see `batch_norm`."""
    ones, zeros = tf.ones_initializer(), tf.zeros_initializer()
    with tf.compat.v1.variable_scope(name):
        return BatchNormVariables(
            gamma=_variable("gamma", channels, zeros if zero_gamma else ones, trainable=True),
            beta=_variable("beta", channels, zeros, trainable=True),
            moving_mean=_variable("moving_mean", channels, zeros, trainable=False),
            moving_variance=_variable("moving_variance", channels, ones, trainable=False),
        )


def update_moving_averages(variables, mean, variance, count, params):
    """Adds the updates of the moving averages to `UPDATE_OPS`.

    Args:
      variables: of the layer.
      mean: float32 `[channels]`, of the batch.
      variance: float32 `[channels]`, of the batch.
      count: number of values per channel, to average the unbiased variance, as the fused kernel for
        images does; None to average `variance`.
      params: see `default_params`.
    """
    if count is not None:
        variance *= count / tf.maximum(count - 1, 1)
    decay = 1 - params["batch_norm_momentum"]
    for moving, value in ((variables.moving_mean, mean), (variables.moving_variance, variance)):
        update = moving.assign_sub((moving - value) * decay, read_value=False)
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)


def replica_sum(params):
    """Returns a function that sums a tensor over the replicas that share statistics; their number.

    Keep the function for the gradient, which is built after the scope of the device has ended.
    """
    here = device.current()
    if params["batch_norm_cross_replica"] and here.num_replicas > 1:
        return here.cross_replica_sum, here.num_replicas
    return tf.identity, 1


def normalize_batch(x, variables, params, select, inside=None, sign=None, groups=1):
    """Batch norm in training from sums over the per-replica or global batch.

    A TPU has no kernel for it. Forward and backward pass are one multiply-add per value, with
    coefficients per channel, so that XLA fuses them into the adjacent convolutions; otherwise it
    would write the gradient of batch norm to memory.

    Args:
      x: float32 or bfloat16 `[batch, ..., channels]`, the per-replica batch.
      variables: of the layer.
      params: see `default_params`.
      select: function that selects some of the values of `x`; the result has only these, and the
        statistics are those of all. It returns `[..., channels]`.
      inside: NumPy bool `[height, width, 1]`, whether a value is part of `x`; None: all.
      sign: float32 `[channels]`, 1 or -1, by which `x` was multiplied; None: 1.
      groups: number of places whose values are in the last dimension of `x`, `groups * channels`,
        and in that of `select(x)` or not.

    Returns:
      A tensor of the shape of `select(x)` and the dtype of `x`.
    """
    axes = list(range(x.shape.rank - 1))
    channels = x.shape[-1] // groups
    num_values = tf.size(x) // channels if inside is None else tf.shape(x)[0] * inside.sum()
    reduce, num_replicas = replica_sum(params)
    count = tf.cast(num_values, tf.float32) * num_replicas
    # Less the moving mean: E[x^2] - E[x]^2 would cancel for values far from 0.
    shift, gamma = variables.moving_mean.read_value(), variables.gamma.read_value()
    if sign is not None:
        shift, gamma = sign * shift, sign * gamma

    def sum_and_product_sum(tensor, values):
        sums = tf.stack([tf.reduce_sum(tensor, axes), tf.reduce_sum(tensor * values, axes)])
        return sums if groups == 1 else tf.reduce_sum(tf.reshape(sums, [2, -1, channels]), 1)

    def of_groups(values, like=x):
        return values if like.shape[-1] == channels else tf.tile(values, [groups])

    @tf.custom_gradient
    def normalize(x, gamma, beta):
        all_values = tf.cast(x, tf.float32) - of_groups(shift)
        if inside is not None:
            all_values = tf.where(inside, all_values, 0)
        mean, mean_square = tf.unstack(reduce(sum_and_product_sum(all_values, all_values)) / count)
        variance = tf.maximum(mean_square - mean**2, 0)
        inverse = tf.math.rsqrt(variance + params["batch_norm_epsilon"])
        scale = gamma * inverse
        kept = select(x)
        values = tf.cast(kept, tf.float32) - of_groups(shift, kept)
        offset = of_groups(beta - mean * scale, kept)
        normalized = tf.cast(values * of_groups(scale, kept) + offset, x.dtype)

        def gradient(upstream, *statistics_gradients):
            del statistics_gradients
            upstream = tf.cast(upstream, tf.float32)
            sums = sum_and_product_sum(upstream, values)
            all_sums = reduce(sums)
            slope = -scale * inverse**2 * (all_sums[1] - mean * all_sums[0]) / count
            constant = -scale * all_sums[0] / count - slope * mean
            scaled = tf.cast(upstream * of_groups(scale, kept), x.dtype)
            (x_gradient,) = tf.gradients(kept, x, scaled)
            x_gradient = tf.cast(x_gradient, tf.float32) + of_groups(constant)
            x_gradient += all_values * of_groups(slope)
            return tf.cast(x_gradient, x.dtype), (sums[1] - mean * sums[0]) * inverse, sums[0]

        return (normalized, mean + shift, variance), gradient

    normalized, mean, variance = normalize(x, gamma, variables.beta.read_value())
    if sign is not None:
        mean *= sign
    unbiased = count if x.shape.rank == 4 else None
    update_moving_averages(variables, mean, variance, unbiased, params)
    return normalized


def every(x, strides):
    """Returns every `strides`-th row and column of `[batch, height, width, channels]`."""
    return x if strides == 1 else x[:, ::strides, ::strides]


def _variable(name, channels, initializer, trainable):
    return tf.compat.v1.get_variable(
        name,
        [channels],
        tf.float32,
        initializer=initializer,
        trainable=trainable,
        # All replicas of a strategy assign the same value.
        aggregation=tf.VariableAggregation.MEAN,
    )
