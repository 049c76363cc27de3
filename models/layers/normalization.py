"""Batch norm, over the batch of one core or the batches of all cores of a TPU, and layer norm."""

from __future__ import annotations

import re

import tensorflow as tf

from models.layers import device
from models.model import ModelError, check_fractions


def default_params(momentum=0.9, epsilon=1e-3):
    """Returns the hyperparameters of `batch_norm`."""
    return {
        "batch_norm_momentum": momentum,  # of the moving mean and variance
        "batch_norm_epsilon": epsilon,
        "batch_norm_cross_replica": False,  # over all cores of a TPU, not each core by itself
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_fractions(params, "batch_norm_momentum")
    if params["batch_norm_epsilon"] <= 0:
        raise ModelError(f"batch_norm_epsilon={params['batch_norm_epsilon']} must be above 0")


def batch_norm(x, params, training, name="batch_norm", zero_gamma=False, strides=1):
    """Normalises each channel of `x` (Ioffe and Szegedy 2015, arXiv:1502.03167).

    Args:
      x: float32 or bfloat16 `[batch, ..., channels]`; a core's own batch on a TPU.
      params: `default_params`. With `batch_norm_cross_replica` the mean and variance are those of
        the global batch, at the cost of a sum over all cores, else of each core's part of it; on
        one device the two are the same. With per-core statistics the moving averages are core 0's.
        A layer whose gamma does not match the training's `trainable` is frozen: it uses its moving
        averages in training too, and leaves them as they are.
      training: whether batch statistics are used, and the moving averages updated (`UPDATE_OPS`).
      name: of the variable scope, which holds gamma, beta, moving_mean and moving_variance.
      zero_gamma: whether gamma begins as 0, not 1.
      strides: of the rows and columns that are returned; the statistics are those of all.

    Returns:
      A tensor like `x`; with strides `[batch, ceil(height / strides), ceil(width / strides),
      channels]`.
    """
    training = training and not _is_frozen(params, name)
    gamma_initializer = tf.zeros_initializer() if zero_gamma else tf.ones_initializer()
    here = device.current()
    is_crossed = params["batch_norm_cross_replica"] and here.num_replicas > 1
    if training and (is_crossed or here.is_tpu):
        return _by_sums(x, params, name, gamma_initializer, strides, is_crossed)
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
    """Normalises each example's last axis (Ba et al. 2016, arXiv:1607.06450), in float32.

    Args:
      x: float32 or bfloat16 `[..., channels]`.
      name: of the variable scope, which holds gamma and beta.
      epsilon: added to the variance.

    Returns:
      A tensor like `x`.
    """
    with tf.compat.v1.variable_scope(name):
        gamma = _variable("gamma", x, tf.ones_initializer(), trainable=True)
        beta = _variable("beta", x, tf.zeros_initializer(), trainable=True)
    values = tf.cast(x, tf.float32)
    if device.is_tpu():
        # One pass, which XLA fuses with what computes x. Less exact for values far from 0.
        mean = tf.reduce_mean(values, -1, keepdims=True)
        mean_square = tf.reduce_mean(tf.square(values), -1, keepdims=True)
        variance = tf.maximum(mean_square - tf.square(mean), 0.0)
    else:
        mean, variance = tf.nn.moments(values, [-1], keepdims=True)
    normalized = tf.nn.batch_normalization(values, mean, variance, beta, gamma, epsilon)
    return tf.cast(normalized, x.dtype)


def _is_frozen(params, name):
    scope = tf.compat.v1.get_variable_scope().name
    gamma = "/".join(filter(None, (scope, name, "gamma")))
    return not re.fullmatch(params.get("trainable", ".*"), gamma)


def _by_sums(x, params, name, gamma_initializer, strides, is_crossed):
    """Batch norm in training out of sums over the batch, of one core or of all.

    A TPU has no kernel of its own for it. Forward and backward are one multiplication and one
    addition a value, with what is the same for a channel computed before: so XLA puts both into the
    convolutions around it, where it would write the gradient of its own expansion to memory.
    """
    with tf.compat.v1.variable_scope(name):
        gamma = _variable("gamma", x, gamma_initializer, trainable=True)
        beta = _variable("beta", x, tf.zeros_initializer(), trainable=True)
        moving_mean = _variable("moving_mean", x, tf.zeros_initializer(), trainable=False)
        moving_variance = _variable("moving_variance", x, tf.ones_initializer(), trainable=False)

    axes = list(range(x.shape.rank - 1))
    count = tf.cast(tf.size(x) // x.shape[-1], tf.float32)
    here = device.current()  # for the gradient too, which is built after the scope has ended
    count *= here.num_replicas if is_crossed else 1

    def of_all(sums):
        return here.cross_replica_sum(sums) if is_crossed else sums

    def sums_with(tensor, values):
        return tf.stack([tf.reduce_sum(tensor, axes), tf.reduce_sum(tensor * values, axes)])

    # What is left after the moving mean: in squares of large values little would be left of it.
    shift = moving_mean.read_value()

    @tf.custom_gradient
    def normalize(x, gamma, beta):
        all_values = tf.cast(x, tf.float32) - shift
        mean, mean_square = tf.unstack(of_all(sums_with(all_values, all_values)) / count)
        variance = tf.maximum(mean_square - mean**2, 0)
        inverse = tf.math.rsqrt(variance + params["batch_norm_epsilon"])
        scale = gamma * inverse
        kept = every(x, strides)
        values = tf.cast(kept, tf.float32) - shift
        normalized = tf.cast(values * scale + (beta - mean * scale), x.dtype)

        def gradient(upstream, *of_statistics):
            del of_statistics
            upstream = tf.cast(upstream, tf.float32)
            sums = sums_with(upstream, values)
            all_sums = of_all(sums)
            slope = -scale * inverse**2 * (all_sums[1] - mean * all_sums[0]) / count
            constant = -scale * all_sums[0] / count - slope * mean
            (of_kept,) = tf.gradients(kept, x, tf.cast(upstream * scale, x.dtype))
            of_x = tf.cast(of_kept, tf.float32) + all_values * slope + constant
            return tf.cast(of_x, x.dtype), (sums[1] - mean * sums[0]) * inverse, sums[0]

        return (normalized, mean + shift, variance), gradient

    normalized, mean, variance = normalize(x, gamma.read_value(), beta.read_value())
    decay = 1 - params["batch_norm_momentum"]
    if x.shape.rank == 4:  # the fused kernel of one device, which is for images, keeps the unbiased
        variance *= count / tf.maximum(count - 1, 1)
    for moving, value in ((moving_mean, mean), (moving_variance, variance)):
        update = moving.assign_sub((moving - value) * decay, read_value=False)
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
    return normalized


def every(x, strides):
    """Returns each `strides`-th row and column of images."""
    return x if strides == 1 else x[:, ::strides, ::strides]


def _variable(name, x, initializer, trainable):
    return tf.compat.v1.get_variable(
        name,
        x.shape[-1:],
        tf.float32,
        initializer=initializer,
        trainable=trainable,
        # Of a strategy's replicas, which all assign the same.
        aggregation=tf.VariableAggregation.MEAN,
    )
