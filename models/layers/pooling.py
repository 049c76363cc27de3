"""Pooling."""

from __future__ import annotations

import tensorflow as tf


def global_pool(x, name):
    """Global average pooling of `[batch, height, width, channels]` to `[batch, channels]`."""
    with tf.name_scope(name):
        # A CPU sums bfloat16 in bfloat16, where 256 + 1 is 256.
        dtype = tf.float32 if x.dtype == tf.bfloat16 else x.dtype
        return tf.cast(tf.reduce_mean(tf.cast(x, dtype), axis=[1, 2]), x.dtype)
