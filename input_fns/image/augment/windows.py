"""Random crop windows of images of any size; the crops are resized to the model's size."""

from __future__ import annotations

import tensorflow as tf

# Aspect ratio (Szegedy et al. 2015, arXiv:1409.4842, section 6).
_LARGEST_RATIO = 4 / 3
# For `box_crop`; the ratio is relative to that of the image.
_TRIALS, _SMALLEST_SIDE, _LARGEST_CHANGE = 40, 0.3, 2.0
BOX_CROP_NUMBERS = 1 + 4 * _TRIALS


def resize_crop(numbers, size, center_window, smallest_area):
    """Returns the window of a random resized crop, int32 `[..., 4]`: y, x, height and width.

    Args:
      numbers: float32 `[..., 4]` in [0, 1): area, aspect ratio, y and x.
      size: height and width of the image.
      center_window: int32 `[4]`, center crop of evaluation; unused.
      smallest_area: the area is this fraction of the image's to 1; the aspect ratio 3/4 to 4/3.
    """
    del center_window
    height, width = (tf.cast(side, tf.float32) for side in size)
    area, ratio, down, right = tf.unstack(numbers, axis=-1)
    area = (smallest_area + area * (1 - smallest_area)) * height * width
    ratio = tf.pow(_LARGEST_RATIO, 2 * ratio - 1)
    # A side longer than the image's is clipped, which makes the area smaller.
    high = tf.clip_by_value(tf.round(tf.sqrt(area / ratio)), 1, height)
    wide = tf.clip_by_value(tf.round(tf.sqrt(area * ratio)), 1, width)
    return _placed(down, right, (height, width), high, wide)


def random_crop(numbers, size, center_window):
    """Returns a random window as large as `center_window`; see `resize_crop`."""
    height, width = (tf.cast(side, tf.float32) for side in size)
    high, wide = tf.unstack(tf.cast(center_window[2:], tf.float32))
    return _placed(*tf.unstack(numbers, axis=-1), (height, width), high, wide)


def box_crop(numbers, size, boxes, probability, overlap):
    """Returns a random window that keeps a box, int32 `[4]` (Liu et al. 2016, arXiv:1512.02325).

    The first of 40 random windows, with sides of 0.3 to 1 of the image's and an aspect ratio of 1/2
    to 2 times the image's, in which at least one box keeps `overlap` of its area. The whole image
    if there is none; the first window of an image without boxes.

    Args:
      numbers: float32 `[BOX_CROP_NUMBERS]` in [0, 1).
      size: int32 `[2]`, height and width of the image.
      boxes: float32 `[n, 4]`: y0, x0, y1, x1 in pixels, without padding.
      probability: share of the images that are cropped.
      overlap: see above.
    """
    trials = tf.reshape(numbers[1:], [_TRIALS, 2, 2])
    shares = _SMALLEST_SIDE + trials[:, 0] * (1 - _SMALLEST_SIDE)
    full = tf.cast(size, tf.float32)
    sides = tf.maximum(tf.round(shares * full), 1.0)  # [trials, 2]
    start = tf.minimum(tf.floor(trials[:, 1] * (full - sides + 1)), full - sides)
    low = tf.maximum(boxes[:, :2], start[:, tf.newaxis])  # [trials, n, 2]
    high = tf.minimum(boxes[:, 2:], (start + sides)[:, tf.newaxis])
    inside = tf.reduce_prod(tf.maximum(high - low, 0.0), axis=-1)
    area = tf.reduce_prod(boxes[:, 2:] - boxes[:, :2], axis=-1)
    keeps_one = tf.reduce_any(inside >= overlap * area, axis=1)
    is_empty = tf.equal(tf.shape(boxes)[0], 0)
    ratio = shares[:, 0] / shares[:, 1]
    has_ratio = (ratio <= _LARGEST_CHANGE) & (ratio >= 1 / _LARGEST_CHANGE)
    found = has_ratio & (keeps_one | is_empty)
    is_cropped = tf.reduce_any(found) & (numbers[0] < probability)
    first = tf.argmax(tf.cast(found, tf.int32))
    window = tf.concat([start[first], sides[first]], axis=0)
    whole = tf.concat([tf.zeros([2]), full], axis=0)
    return tf.cast(tf.where(is_cropped, window, whole), tf.int32)


def scale_jitter(numbers, scale, size, canvas, low, high):
    """Returns scale and offset of a `placement.Placement`, float32 `[2]`, of a random scale.

    Args:
      numbers: float32 `[3]` in [0, 1): scale, y and x.
      scale: float32 `[2]`, that fits the image into the canvas.
      size: int32 `[2]`, height and width of the image.
      canvas: `(height, width)`, ints.
      low: the image gets `low` to `high` times `scale`, then a random crop or padding.
      high: see `low`.
    """
    scale *= low + numbers[0] * (high - low)
    room = tf.floor(tf.cast(size, tf.float32) * scale) - tf.constant(canvas, tf.float32)
    room = tf.maximum(room, 0.0)
    # Uniform over all positions; a float32 product may round up to the end.
    return scale, tf.minimum(tf.floor(numbers[1:] * (room + 1)), room)


def _placed(down, right, size, high, wide):
    # Uniform over all positions; a float32 product may round up to the end.
    height, width = size
    y = tf.minimum(tf.floor(down * (height - high + 1)), height - high)
    x = tf.minimum(tf.floor(right * (width - wide + 1)), width - wide)
    ones = tf.ones_like(y)
    return tf.cast(tf.stack([y, x, high * ones, wide * ones], axis=-1), tf.int32)
