"""Batch norm, per replica or cross-replica, and layer norm."""

from __future__ import annotations

import re

import tensorflow as tf

from models.layers import device, fusion
from models.model import ModelError, check_fractions


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
    if params["batch_norm_epsilon"] <= 0:
        raise ModelError(f"batch_norm_epsilon={params['batch_norm_epsilon']} must be above 0")


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
    training = training and not _is_frozen(params, name)
    gamma_initializer = tf.zeros_initializer() if zero_gamma else tf.ones_initializer()
    here = device.current()
    is_cross_replica = params["batch_norm_cross_replica"] and here.num_replicas > 1
    if training and (is_cross_replica or here.is_tpu):
        return _batch_norm_from_sums(x, params, name, gamma_initializer, strides, is_cross_replica)
    normalized = tf.compat.v1.layers.batch_normalization(
        x,
        momentum=params["batch_norm_momentum"],
        epsilon=params["batch_norm_epsilon"],
        gamma_initializer=gamma_initializer,
        training=training,
        name=name,
    )
    return every(normalized, strides)


def layer_norm(x, name="layer_norm", epsilon=1e-6):
    """Layer normalization of the last axis (Ba et al. 2016, arXiv:1607.06450), in float32.

    Args:
      x: float32 or bfloat16 `[..., channels]`.
      name: variable scope of gamma and beta, each `[channels]`.
      epsilon: added to the variance.

    Returns:
      A tensor of the shape and dtype of `x`.
    """
    with tf.compat.v1.variable_scope(name):
        gamma = _variable("gamma", x, tf.ones_initializer(), trainable=True)
        beta = _variable("beta", x, tf.zeros_initializer(), trainable=True)
    tensors = x, gamma.read_value(), beta.read_value()
    return fusion.fuse(_normalize_last, *tensors, epsilon=epsilon, one_pass=device.is_tpu())


def _normalize_last(x, gamma, beta, epsilon, one_pass):
    values = tf.cast(x, tf.float32)
    if one_pass:  # XLA fuses it with what computes x. Less exact for values far from 0.
        mean = tf.reduce_mean(values, -1, keepdims=True)
        mean_square = tf.reduce_mean(tf.square(values), -1, keepdims=True)
        variance = tf.maximum(mean_square - tf.square(mean), 0.0)
    else:
        mean, variance = tf.nn.moments(values, [-1], keepdims=True)
    normalized = tf.nn.batch_normalization(values, mean, variance, beta, gamma, epsilon)
    return tf.cast(normalized, x.dtype)


def _is_frozen(params, name):
    """Returns whether the hyperparameter `trainable` excludes the layer called `name`."""
    scope = tf.compat.v1.get_variable_scope().name
    gamma = "/".join(filter(None, (scope, name, "gamma")))
    return not re.fullmatch(params.get("trainable", ".*"), gamma)


def _batch_norm_from_sums(x, params, name, gamma_initializer, strides, is_cross_replica):
    """Batch norm in training from sums over the per-replica or global batch.

    A TPU has no kernel for it. Forward and backward pass are one multiply-add per value, with
    coefficients per channel, so that XLA fuses them into the adjacent convolutions; otherwise it
    would write the gradient of batch norm to memory.
    """
    with tf.compat.v1.variable_scope(name):
        gamma = _variable("gamma", x, gamma_initializer, trainable=True)
        beta = _variable("beta", x, tf.zeros_initializer(), trainable=True)
        moving_mean = _variable("moving_mean", x, tf.zeros_initializer(), trainable=False)
        moving_variance = _variable("moving_variance", x, tf.ones_initializer(), trainable=False)

    axes = list(range(x.shape.rank - 1))
    count = tf.cast(tf.size(x) // x.shape[-1], tf.float32)
    here = device.current()  # for the gradient too, which is built after the scope has ended
    count *= here.num_replicas if is_cross_replica else 1

    def reduce(sums):
        return here.cross_replica_sum(sums) if is_cross_replica else sums

    def sum_and_product_sum(tensor, values):
        return tf.stack([tf.reduce_sum(tensor, axes), tf.reduce_sum(tensor * values, axes)])

    # Less the moving mean: E[x^2] - E[x]^2 would cancel for values far from 0.
    shift = moving_mean.read_value()

    @tf.custom_gradient
    def normalize(x, gamma, beta):
        all_values = tf.cast(x, tf.float32) - shift
        mean, mean_square = tf.unstack(reduce(sum_and_product_sum(all_values, all_values)) / count)
        variance = tf.maximum(mean_square - mean**2, 0)
        inverse = tf.math.rsqrt(variance + params["batch_norm_epsilon"])
        scale = gamma * inverse
        kept = every(x, strides)
        values = tf.cast(kept, tf.float32) - shift
        normalized = tf.cast(values * scale + (beta - mean * scale), x.dtype)

        def gradient(upstream, *statistics_gradients):
            del statistics_gradients
            upstream = tf.cast(upstream, tf.float32)
            sums = sum_and_product_sum(upstream, values)
            all_sums = reduce(sums)
            slope = -scale * inverse**2 * (all_sums[1] - mean * all_sums[0]) / count
            constant = -scale * all_sums[0] / count - slope * mean
            (x_gradient,) = tf.gradients(kept, x, tf.cast(upstream * scale, x.dtype))
            x_gradient = tf.cast(x_gradient, tf.float32) + all_values * slope + constant
            return tf.cast(x_gradient, x.dtype), (sums[1] - mean * sums[0]) * inverse, sums[0]

        return (normalized, mean + shift, variance), gradient

    normalized, mean, variance = normalize(x, gamma.read_value(), beta.read_value())
    decay = 1 - params["batch_norm_momentum"]
    if x.shape.rank == 4:  # like the fused kernel for images, which averages the unbiased variance
        variance *= count / tf.maximum(count - 1, 1)
    for moving, value in ((moving_mean, mean), (moving_variance, variance)):
        update = moving.assign_sub((moving - value) * decay, read_value=False)
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
    return normalized


def every(x, strides):
    """Returns every `strides`-th row and column of `[batch, height, width, channels]`."""
    return x if strides == 1 else x[:, ::strides, ::strides]


def _variable(name, x, initializer, trainable):
    return tf.compat.v1.get_variable(
        name,
        x.shape[-1:],
        tf.float32,
        initializer=initializer,
        trainable=trainable,
        # All replicas of a strategy assign the same value.
        aggregation=tf.VariableAggregation.MEAN,
    )
