"""Batch norm, over the batch of one core or the batches of all cores of a TPU, and layer norm."""

from __future__ import annotations

import re

import tensorflow as tf

from models import replicas
from models.model import ModelError, check_shares


def default_params(momentum=0.9, epsilon=1e-3):
    """Returns the hyperparameters of `batch_norm`."""
    return {
        "batch_norm_momentum": momentum,  # of the moving mean and variance
        "batch_norm_epsilon": epsilon,
        "batch_norm_cross_replica": False,  # over all cores of a TPU, not each core by itself
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_shares(params, "batch_norm_momentum")
    if params["batch_norm_epsilon"] <= 0:
        raise ModelError(f"batch_norm_epsilon={params['batch_norm_epsilon']} must be above 0")


def batch_norm(x, params, training, name="batch_norm", zero_gamma=False):
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

    Returns:
      A tensor like `x`.
    """
    training = training and not _is_frozen(params, name)
    gamma_initializer = tf.zeros_initializer() if zero_gamma else tf.ones_initializer()
    if training and params["batch_norm_cross_replica"] and replicas.count(params) > 1:
        return _cross_replica(x, params, name, gamma_initializer)
    return tf.compat.v1.layers.batch_normalization(
        x,
        momentum=params["batch_norm_momentum"],
        epsilon=params["batch_norm_epsilon"],
        gamma_initializer=gamma_initializer,
        training=training,
        name=name,
    )


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
    mean, variance = tf.nn.moments(tf.cast(x, tf.float32), [-1], keepdims=True)
    normalized = tf.nn.batch_normalization(
        tf.cast(x, tf.float32), mean, variance, beta, gamma, epsilon
    )
    return tf.cast(normalized, x.dtype)


def _is_frozen(params, name):
    scope = tf.compat.v1.get_variable_scope().name
    gamma = "/".join(filter(None, (scope, name, "gamma")))
    return not re.fullmatch(params.get("trainable", ".*"), gamma)


def _cross_replica(x, params, name, gamma_initializer):
    with tf.compat.v1.variable_scope(name):
        gamma = _variable("gamma", x, gamma_initializer, trainable=True)
        beta = _variable("beta", x, tf.zeros_initializer(), trainable=True)
        moving_mean = _variable("moving_mean", x, tf.zeros_initializer(), trainable=False)
        moving_variance = _variable("moving_variance", x, tf.ones_initializer(), trainable=False)

    axes = list(range(x.shape.rank - 1))
    # Sums of what is left after the moving mean: of large values little would be left afterwards.
    count, mean_sum, square_sum, shift = tf.nn.sufficient_statistics(
        tf.cast(x, tf.float32), axes, shift=moving_mean.read_value()
    )
    sums = replicas.total(tf.stack([mean_sum, square_sum]), params)
    count *= replicas.count(params)
    mean, variance = tf.nn.normalize_moments(count, sums[0], sums[1], shift)

    decay = 1 - params["batch_norm_momentum"]
    unbiased = variance * (count / (count - 1))  # as the fused kernel of one device has it
    for moving, value in ((moving_mean, mean), (moving_variance, unbiased)):
        update = moving.assign_sub((moving - value) * decay, read_value=False)
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
    normalized = tf.nn.batch_normalization(
        tf.cast(x, tf.float32), mean, variance, beta, gamma, params["batch_norm_epsilon"]
    )
    return tf.cast(normalized, x.dtype)


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
