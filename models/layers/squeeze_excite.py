"""Squeeze and excitation: weights for channels, from their means (Hu et al. 2017, 1709.01507)."""

from __future__ import annotations

import tensorflow as tf

from models.layers.pooling import global_pool
from models.layers.swish import swish

_INITIALIZER = tf.compat.v1.variance_scaling_initializer(2.0, "fan_out", "untruncated_normal")


def squeeze_excite(x, channels, name="squeeze_excite"):
    """Multiplies each channel of an image by a number in (0, 1).

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels_in]`.
      channels: of the hidden layer.
      name: variable scope of the dense layers `reduce` and `expand`.

    Returns:
      A tensor of the shape and dtype of `x`.
    """
    with tf.compat.v1.variable_scope(name):
        hidden = swish(_dense(global_pool(x, "means"), channels, "reduce"))
        gates = tf.sigmoid(_dense(hidden, x.shape[-1], "expand"))
    return x * gates[:, tf.newaxis, tf.newaxis]


def _dense(x, channels, name):
    return tf.compat.v1.layers.dense(x, channels, kernel_initializer=_INITIALIZER, name=name)
