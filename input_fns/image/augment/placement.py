"""Places an image of any size, with its mask and boxes, on the canvas that the model gets.

A placement crops the image, scales it and moves it: pixel position p of the image, in continuous
coordinates where pixel i covers i to i + 1, becomes `(p - window start) * scale - offset`. The same
numbers move pixels, mask and boxes. The canvas shows zeros, and the mask 255, beside the image.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from common.constants import IGNORED_CLASS


class Placement(NamedTuple):
    """Position of an image on the canvas; y comes before x.

    Attributes:
      window: int32 `[4]`, the part of the image that is used: y, x, height, width.
      scale: float32 `[2]`, pixels of the canvas per pixel of the image.
      offset: float32 `[2]`, position of the canvas in the scaled window.
      canvas: `(height, width)` of the result, ints.
    """

    window: tf.Tensor
    scale: tf.Tensor
    offset: tf.Tensor
    canvas: tuple[int, int]


def fit(size, canvas, keep_aspect_ratio: bool) -> Placement:
    """Returns the placement of evaluation: the whole image, at the top left.

    Args:
      size: int32 `[2]`, height and width of the image.
      canvas: `(height, width)` of the result, ints.
      keep_aspect_ratio: True to fit the image into the canvas, and to leave the bottom or the right
        of the canvas free; False to fill the canvas.
    """
    window = tf.concat([[0, 0], size], axis=0)
    return Placement(window, _scale(size, canvas, keep_aspect_ratio), tf.zeros([2]), canvas)


def sample(numbers, size, boxes, canvas, keep_aspect_ratio: bool, box_crop, scale_jitter):
    """Returns a random placement, a `Placement`.

    Args:
      numbers: float32 `[n]` in [0, 1): those of `box_crop`, then those of `scale_jitter`.
      size: int32 `[2]`, height and width of the image.
      boxes: float32 `[m, 4]`, those that a crop must keep one of, or None.
      canvas: `(height, width)` of the result, ints.
      keep_aspect_ratio: as in `fit`.
      box_crop: `augmentation.Operation` of `windows.box_crop`, or None for the whole image.
      scale_jitter: that of `windows.scale_jitter`, or None to fit the window into the canvas.
    """
    whole = fit(size, canvas, keep_aspect_ratio)
    window, column = whole.window, 0
    if box_crop is not None:
        column = box_crop.numbers
        window = box_crop(numbers[:column], size, boxes)
    scale, offset = _scale(window[2:], canvas, keep_aspect_ratio), whole.offset
    if scale_jitter is not None:
        own = numbers[column : column + scale_jitter.numbers]
        scale, offset = scale_jitter(own, scale, window[2:], canvas)
    return Placement(window, scale, offset, canvas)


def _scale(size, canvas, keep_aspect_ratio):
    scale = tf.constant(canvas, tf.float32) / tf.cast(size, tf.float32)
    return tf.repeat(tf.reduce_min(scale), 2) if keep_aspect_ratio else scale


def place_image(image, placement: Placement):
    """Returns uint8 `[height, width, channels]` of the canvas; averages pixels when it shrinks.

    Args:
      image: uint8 `[h, w, channels]`.
      placement: where the image is on the canvas.
    """
    y, x, height, width = tf.unstack(placement.window)
    placed = tf.raw_ops.ScaleAndTranslate(
        images=image[tf.newaxis, y : y + height, x : x + width],
        size=placement.canvas,
        scale=placement.scale,
        translation=-placement.offset,
        kernel_type="triangle",
        antialias=True,
    )
    shape = [*placement.canvas, image.shape[-1]]
    return tf.ensure_shape(tf.cast(placed[0] + 0.5, tf.uint8), shape)  # rounds: a cast truncates


def place_mask(mask, placement: Placement):
    """Returns uint8 `[height, width]` of the canvas by nearest neighbor; 255 beside the image.

    Args:
      mask: uint8 `[h, w]`.
      placement: where the image is on the canvas.
    """
    is_inside = True
    for axis in range(2):
        # Pixel centers, as the image.
        centers = tf.range(placement.canvas[axis], dtype=tf.float32) + 0.5
        at = (centers + placement.offset[axis]) / placement.scale[axis]
        first, size = placement.window[axis], placement.window[axis + 2]
        index = tf.cast(tf.floor(at), tf.int32)
        inside = (at >= 0) & (at < tf.cast(size, tf.float32))
        is_inside &= tf.reshape(inside, [-1, 1] if axis == 0 else [1, -1])
        mask = tf.gather(mask, first + tf.clip_by_value(index, 0, size - 1), axis=axis)
    outside = tf.constant(IGNORED_CLASS, tf.uint8)
    return tf.ensure_shape(tf.where(is_inside, mask, outside), placement.canvas)


def place_boxes(boxes, placement: Placement):
    """Returns float32 `[n, 4]`, clipped, and float32 `[n]`, the fraction of the area that is left.

    Args:
      boxes: float32 `[n, 4]`: y0, x0, y1, x1 in pixels of the image.
      placement: where the image is on the canvas.
    """
    window = tf.cast(placement.window, tf.float32)
    moved = tf.reshape(move_boxes(boxes, placement), [-1, 2, 2])
    low = tf.maximum(-placement.offset, 0.0)
    high = window[2:] * placement.scale - placement.offset
    high = tf.minimum(high, tf.constant(placement.canvas, tf.float32))
    clipped = tf.clip_by_value(moved, low, high)
    area, inside = (
        tf.reduce_prod(found[:, 1] - found[:, 0], axis=-1) for found in (moved, clipped)
    )
    return tf.reshape(clipped, [-1, 4]), tf.math.divide_no_nan(inside, area)


def move_boxes(boxes, placement: Placement):
    """Returns boxes `[n, 4]` of the image in pixels of the canvas, also where they are outside."""
    window = tf.cast(placement.window, tf.float32)
    corners = tf.reshape(boxes, [-1, 2, 2])
    moved = (corners - window[:2]) * placement.scale - placement.offset
    return tf.reshape(moved, [-1, 4])
