"""Resizing of feature maps."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from models.layers import device
from models.layers.dropout import shape_of


def resize_bilinear(x, height, width):
    """Resizes feature maps like `tf.image.resize`: bilinear, half-pixel centers, no antialiasing.

    It multiplies by constant matrices, one per axis: a TPU computes these and their gradients on
    its matrix unit, and every runtime supports them.

    Args:
      x: float32 or bfloat16 `[batch, old_height, old_width, channels]`, static but for the batch.
      height: new height.
      width: new width.

    Returns:
      `[batch, height, width, channels]`, of the dtype of `x`.
    """
    with tf.name_scope("resize_bilinear"):
        _, old_height, old_width, _ = x.shape.as_list()
        if height != old_height:
            rows = tf.constant(interpolation_matrix(old_height, height), x.dtype)
            x = tf.einsum("oh,bhwc->bowc", rows, x)
        if width != old_width:
            columns = tf.constant(interpolation_matrix(old_width, width), x.dtype)
            x = tf.einsum("ow,bhwc->bhoc", columns, x)
        return x


def double(x):
    """Repeats each pixel of `[batch, height, width, channels]` twice in both directions.

    XLA has no gradient of ResizeNearestNeighbor on a CPU. A CPU takes half of the time of
    broadcasting. OpenVINO reads tf.tile here wrongly, and TensorFlow Lite has no slices of six
    dimensions.
    """
    if device.is_tpu() and x.dtype == tf.bfloat16:
        return _double_by_product(x)
    return tf.nn.depth_to_space(tf.concat([x] * 4, axis=-1), 2)


def _double_by_product(x):
    """Computes `double` of bfloat16 on a TPU: columns by a product with ones and zeros, exactly.

    Rows are repeated by the sum that follows. A depth_to_space copies the map three times, and a
    transposed convolution takes longer still.
    """
    batch, height, width, channels = shape_of(x)
    columns = tf.constant(np.repeat(np.eye(width), 2, axis=0), x.dtype)
    x = tf.einsum("ow,bhwc->bhoc", columns, x)
    x = tf.broadcast_to(x[:, :, tf.newaxis], [batch, height, 2, 2 * width, channels])
    return tf.reshape(x, [batch, 2 * height, 2 * width, channels])


def interpolation_matrix(old_size: int, new_size: int) -> np.ndarray:
    """Returns the weights of linear interpolation, float32 `[new_size, old_size]`; rows sum to 1.

    Output i is at `(i + 0.5) * old_size / new_size - 0.5` of the input, clipped to it.
    """
    places = (np.arange(new_size) + 0.5) * old_size / new_size - 0.5
    places = np.clip(places, 0, old_size - 1)
    below = np.minimum(places.astype(np.int64), max(old_size - 2, 0))
    matrix = np.zeros([new_size, old_size])
    rows = np.arange(new_size)
    matrix[rows, below] = 1 - (places - below)
    if old_size > 1:
        matrix[rows, below + 1] = places - below
    return matrix.astype(np.float32)
