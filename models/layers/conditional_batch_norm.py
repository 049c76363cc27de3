"""Batch norm whose scale and offset depend on a class."""

from __future__ import annotations

import tensorflow as tf

from models.layers import normalization


def conditional_batch_norm(x, classes, params, training, name="batch_norm"):
    """Conditional batch normalization (de Vries et al. 2017, arXiv:1707.00683, section 3).

    A class changes the scale and the offset of batch norm by learned differences, which start at 0:
    `(1 + scale[class]) * batch_norm(x) + offset[class]`.

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels]`.
      classes: `[batch, num_classes]`, one-hot, of the dtype of `x`; None for plain batch norm.
      params: see `normalization.default_params`.
      training: see `normalization.batch_norm`.
      name: variable scope of batch norm, and of `class_scale` and `class_offset`, `[num_classes,
        channels]`.

    Returns:
      A tensor of the shape and dtype of `x`.
    """
    x = normalization.batch_norm(x, params, training, name)
    if classes is None:
        return x
    shape = [classes.shape.as_list()[-1], x.shape.as_list()[-1]]
    zeros = tf.zeros_initializer()
    with tf.compat.v1.variable_scope(name):
        scale, offset = (
            tf.matmul(classes, tf.compat.v1.get_variable(part, shape, x.dtype, zeros))
            for part in ("class_scale", "class_offset")
        )
    return x * (1 + scale[:, tf.newaxis, tf.newaxis]) + offset[:, tf.newaxis, tf.newaxis]
