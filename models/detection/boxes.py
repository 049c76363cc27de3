"""Boxes `(y0, x0, y1, x1)` in pixels: intersection over union, and codes relative to anchors."""

from __future__ import annotations

import math

import tensorflow as tf

# A box is decoded to at most 1000 / 16 times the height and width of its anchor: exp of an
# untrained output may overflow (Detectron's limit).
_MAX_LOG_SCALE = math.log(1000 / 16)


def area(boxes):
    """Returns the areas `[...]` of boxes `[..., 4]`."""
    y0, x0, y1, x1 = tf.unstack(boxes, axis=-1)
    return (y1 - y0) * (x1 - x0)


def intersection(boxes, others):
    """Returns the areas of the intersections of all pairs.

    Args:
      boxes: float32 `[..., m, 4]`.
      others: float32 `[..., n, 4]`; the leading dimensions are broadcast.

    Returns:
      float32 `[..., m, n]`.
    """
    y0, x0, y1, x1 = (side[..., :, tf.newaxis] for side in tf.unstack(boxes, axis=-1))
    v0, u0, v1, u1 = (side[..., tf.newaxis, :] for side in tf.unstack(others, axis=-1))
    height = tf.minimum(y1, v1) - tf.maximum(y0, v0)
    width = tf.minimum(x1, u1) - tf.maximum(x0, u0)
    return tf.maximum(height, 0.0) * tf.maximum(width, 0.0)


def iou(boxes, others):
    """Returns the intersection over union of all pairs, 0 if both boxes have no area.

    Args:
      boxes: float32 `[..., m, 4]`.
      others: float32 `[..., n, 4]`; the leading dimensions are broadcast.

    Returns:
      float32 `[..., m, n]`.
    """
    common = intersection(boxes, others)
    union = area(boxes)[..., :, tf.newaxis] + area(others)[..., tf.newaxis, :] - common
    return tf.math.divide_no_nan(common, union)


def encode(boxes, anchors):
    """Returns the codes of boxes relative to anchors (Ren et al. 2015, arXiv:1506.01497, eq. 2).

    Args:
      boxes: float32 `[..., n, 4]`, with an area.
      anchors: float32 `[n, 4]`.

    Returns:
      float32 `[..., n, 4]`: offsets of the center (y, x) in heights and widths of the anchor, and
      the logarithms of the ratios of heights and widths.
    """
    y, x, height, width = _centers(boxes)
    anchor_y, anchor_x, anchor_height, anchor_width = _centers(anchors)
    return tf.stack(
        [
            (y - anchor_y) / anchor_height,
            (x - anchor_x) / anchor_width,
            tf.math.log(height / anchor_height),
            tf.math.log(width / anchor_width),
        ],
        axis=-1,
    )


def decode(codes, anchors):
    """Returns the boxes of codes: the inverse of `encode`.

    Args:
      codes: float32 `[..., 4]`.
      anchors: float32 `[..., 4]`.

    Returns:
      float32 `[..., 4]`, at most 62.5 times as high and wide as the anchors.
    """
    anchor_y, anchor_x, anchor_height, anchor_width = _centers(anchors)
    dy, dx, log_height, log_width = tf.unstack(codes, axis=-1)
    y, x = dy * anchor_height + anchor_y, dx * anchor_width + anchor_x
    half_height = tf.exp(tf.minimum(log_height, _MAX_LOG_SCALE)) * anchor_height / 2
    half_width = tf.exp(tf.minimum(log_width, _MAX_LOG_SCALE)) * anchor_width / 2
    return tf.stack([y - half_height, x - half_width, y + half_height, x + half_width], axis=-1)


def clip(boxes, height, width):
    """Returns boxes `[batch, n, 4]` clipped to images of float32 `[batch]` heights and widths."""
    limits = tf.stack([height, width, height, width], axis=-1)[:, tf.newaxis]
    return tf.clip_by_value(boxes, 0.0, limits)


def _centers(boxes):
    """Returns center y, center x, height and width, `[...]` each, of boxes `[..., 4]`."""
    y0, x0, y1, x1 = tf.unstack(boxes, axis=-1)
    return (y0 + y1) / 2, (x0 + x1) / 2, y1 - y0, x1 - x0
