"""Spectral normalization (Miyato et al. 2018, arXiv:1802.05957), and layers that have it.

A weight is divided by its largest singular value, which one step of the power iteration estimates
in each training step. The iteration continues from the vector `u` of the step before, a variable
that only training updates. It is a function of the weight, so it is equal on all cores.
"""

from __future__ import annotations

import tensorflow as tf

_EPSILON = 1e-12  # of the norm of a vector, as in the authors' code and PyTorch


def spectral_norm(weight, training):
    """Divides a weight by an estimate of its largest singular value.

    The gradient takes the singular vectors as constants (equation 11 of the paper).

    Args:
      weight: float32 or bfloat16 `[..., units]`, seen as a matrix of `units` columns.
      training: True runs one step of the power iteration and adds the update of `u` to
        `UPDATE_OPS`. In evaluation `u` is that of the last training step.

    Returns:
      A tensor of the shape and dtype of `weight`. The variable `u`, float32 `[units]`, is in the
      current variable scope.
    """
    units = weight.shape.as_list()[-1]
    matrix = tf.reshape(tf.cast(weight, tf.float32), [-1, units])
    u = tf.compat.v1.get_variable(
        "u",
        [units],
        tf.float32,
        initializer=tf.compat.v1.random_normal_initializer(),
        trainable=False,
        # All replicas of a strategy assign the same value.
        aggregation=tf.VariableAggregation.MEAN,
    )
    constant = tf.stop_gradient(matrix)
    right = _unit(u.read_value())
    left = _unit(tf.linalg.matvec(constant, right))
    if training:
        right = _unit(tf.linalg.matvec(constant, left, transpose_a=True))
        update = u.assign(right, read_value=False)
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
    sigma = tf.reduce_sum(left * tf.linalg.matvec(matrix, right))
    return tf.cast(tf.cast(weight, tf.float32) / sigma, weight.dtype)


def conv2d(x, filters, kernel_size, training, name):
    """2-D convolution with a bias and a spectrally normalized kernel, stride 1, padding "same".

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels]`.
      filters: number of output channels.
      kernel_size: height and width of the kernel.
      training: see `spectral_norm`.
      name: variable scope of `kernel`, `bias` and `u`.

    Returns:
      `[batch, height, width, filters]`, of the dtype of `x`.
    """
    with tf.compat.v1.variable_scope(name):
        shape = [kernel_size, kernel_size, x.shape.as_list()[-1], filters]
        kernel = spectral_norm(_weight("kernel", shape, x.dtype), training)
        return tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), _bias(filters, x.dtype))


def dense(x, units, training, name, use_bias=True):
    """Dense layer with a spectrally normalized kernel.

    Args:
      x: float32 or bfloat16 `[batch, features]`; one-hot classes make it an embedding.
      units: number of outputs.
      training: see `spectral_norm`.
      name: variable scope of `kernel`, `bias` and `u`.
      use_bias: whether it adds a bias.

    Returns:
      `[batch, units]`, of the dtype of `x`.
    """
    with tf.compat.v1.variable_scope(name):
        kernel = _weight("kernel", [x.shape.as_list()[-1], units], x.dtype)
        x = tf.matmul(x, spectral_norm(kernel, training))
        return tf.nn.bias_add(x, _bias(units, x.dtype)) if use_bias else x


def _weight(name, shape, dtype):
    return tf.compat.v1.get_variable(name, shape, dtype, tf.compat.v1.glorot_uniform_initializer())


def _bias(units, dtype):
    return tf.compat.v1.get_variable("bias", [units], dtype, tf.zeros_initializer())


def _unit(vector):
    return vector / tf.maximum(tf.norm(vector), _EPSILON)
