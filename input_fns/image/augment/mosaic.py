"""Mosaic of four images and their boxes (Bochkovskiy et al. 2020, arXiv:2004.10934)."""

from __future__ import annotations

import tensorflow as tf

from input_fns import DataError
from input_fns.image.augment import color, geometry

_IMAGES = 4
# The quadrants meet between this fraction of the sides and 1 minus it.
_LEAST_SIDE = 0.3


def mosaic(image, rows, numbers, probability):
    """Fills the quadrants of an image with images of the batch, each scaled to cover its quadrant.

    The rows 0 to 3 of a batch make up four mosaics, 4 to 7 the next ones, and so on: the same on
    any number of hosts and cores.

    Args:
      image: uint8 `[batch, height, width, channels]`.
      rows: `{"boxes": float32 [batch, n, 4], ...}` and other tensors `[batch, n, ...]` of the
        boxes, such as their classes.
      numbers: float32 `[batch, 3]` in [0, 1).
      probability: share of the rows that become a mosaic.

    Returns:
      Images like `image`, `{name: [batch, 4 n, ...]}`, and float32 `[batch, 4 n]`, the fraction of
      each box that is in its quadrant; 0 for the other images' boxes in a row without a mosaic.

    Raises:
      DataError: the batch is not a multiple of four.
    """
    batch, height, width, _ = image.shape.as_list()
    if batch % _IMAGES:
        raise DataError(
            f"--augment: mosaic needs batches of a multiple of {_IMAGES} images on each core; "
            f"they have {batch}"
        )
    size = tf.constant([height, width], tf.float32)
    share = _LEAST_SIDE + numbers[:, 1:] * (1 - 2 * _LEAST_SIDE)
    middle = tf.round(share * size)  # [batch, 2]
    is_mosaic = numbers[:, 0] < probability
    position = tf.range(batch)
    result, all_rows, all_visible = image, [], []
    for quadrant in range(_IMAGES):
        source = position // _IMAGES * _IMAGES + (position + quadrant) % _IMAGES
        is_far = tf.constant([quadrant // 2, quadrant % 2], tf.float32)  # below, right
        start = middle * is_far
        sides = tf.where(is_far > 0, size - middle, middle)
        scale = tf.reduce_max(sides / size, axis=1, keepdims=True)
        moved = _move(tf.gather(image, source), start, scale, (height, width))
        ranges = ((size, start[:, i], sides[:, i]) for i, size in enumerate((height, width)))
        inside = color.inside(*ranges) & is_mosaic[:, tf.newaxis, tf.newaxis]
        result = tf.where(inside[..., tf.newaxis], moved, result)
        own = {name: tf.gather(value, source) for name, value in rows.items()}
        boxes, visible = _clip(own["boxes"], start, sides, scale)
        if not quadrant:  # without a mosaic the row keeps its own boxes
            boxes = tf.where(is_mosaic[:, tf.newaxis, tf.newaxis], boxes, rows["boxes"])
        unmoved = tf.zeros_like(visible) if quadrant else tf.ones_like(visible)
        all_visible.append(tf.where(is_mosaic[:, tf.newaxis], visible, unmoved))
        all_rows.append({**own, "boxes": boxes})
    joined = {name: tf.concat([own[name] for own in all_rows], axis=1) for name in rows}
    return result, joined, tf.concat(all_visible, axis=1)


def _move(images, start, scale, size):
    """Returns images scaled about their first corner, which moves to `start`, `[batch, 2]`."""
    inverse = 1 / scale[:, 0]
    down, right = tf.unstack((0.5 - start) * inverse[:, tf.newaxis] - 0.5, axis=1)
    matrices = geometry.to_matrices([inverse, 0.0, right], [0.0, inverse, down])
    return geometry.transform(images, matrices, size)


def _clip(boxes, start, sides, scale):
    """Returns boxes `[batch, n, 4]` moved into a rectangle, and their visible fractions."""
    corners = tf.reshape(boxes, [boxes.shape[0], -1, 2, 2])
    low, high = start[:, tf.newaxis, tf.newaxis], (start + sides)[:, tf.newaxis, tf.newaxis]
    moved = corners * scale[:, tf.newaxis, tf.newaxis] + low
    clipped = tf.clip_by_value(moved, low, high)
    area, inside = (
        tf.reduce_prod(found[:, :, 1] - found[:, :, 0], -1) for found in (moved, clipped)
    )
    return tf.reshape(clipped, tf.shape(boxes)), tf.math.divide_no_nan(inside, area)
