"""Geometric operations: flip, crop, shift, rotate, shear, scale; see `augmentation.Operation`.

A matrix, float32 `[batch, 3, 3]`, maps (x, y, 1) of a new pixel to (x, y, 1) in the old image; the
center of the first pixel is (0, 0). Consecutive matrices are multiplied, so each image is
interpolated once, and border pixels repeat. The same matrices move masks and boxes ("regions").
"""

from __future__ import annotations

import math

import tensorflow as tf

from common.constants import IGNORED_CLASS


def flip_matrix(numbers, size):
    """Returns the matrices of a horizontal flip with probability 1/2."""
    _, width = size
    sign = tf.where(numbers[:, 0] < 0.5, -1.0, 1.0)
    return to_matrices([sign, 0.0, (width - 1) * (1 - sign) / 2], [0.0, 1.0, 0.0])


def shift_matrix(numbers, size, fraction):
    """Returns the matrices of a translation by up to a fraction of height and width."""
    height, width = size
    down, right = tf.unstack((2 * numbers - 1) * fraction, axis=1)
    return to_matrices([1.0, 0.0, right * width], [0.0, 1.0, down * height])


def rotate_matrix(numbers, size, degrees):
    """Returns the matrices of a rotation about the center by up to some degrees."""
    angle = (2 * numbers[:, 0] - 1) * math.radians(degrees)
    sine, cosine = tf.sin(angle), tf.cos(angle)
    return about_center(size, [cosine, -sine], [sine, cosine])


def shear_matrix(numbers, size, degrees):
    """Returns the matrices of a horizontal shear about the center by up to some degrees."""
    slope = tf.tan((2 * numbers[:, 0] - 1) * math.radians(degrees))
    return about_center(size, [1.0, slope], [0.0, 1.0])


def scale_matrix(numbers, size, fraction):
    """Returns the matrices of a scaling about the center by 1-FRACTION to 1+FRACTION."""
    inverse = 1 / (1 + (2 * numbers[:, 0] - 1) * fraction)
    return about_center(size, [inverse, 0.0], [0.0, inverse])


def crop(images, numbers, pixels):
    """Returns random crops of the original size of zero-padded images, without interpolation."""
    height, width = images.shape[1:3].as_list()
    moves = _crop_moves(numbers, pixels)
    rows = moves[:, 0, tf.newaxis] + tf.range(height)
    columns = moves[:, 1, tf.newaxis] + tf.range(width)
    padded = tf.pad(images, [[0, 0], [pixels, pixels], [pixels, pixels], [0, 0]])
    return take(padded, rows, columns)


def crop_matrices(numbers, size, pixels):
    """Returns the matrices that move masks and boxes like `crop`."""
    del size
    down, right = tf.unstack(tf.cast(_crop_moves(numbers, pixels) - pixels, tf.float32), axis=1)
    return [to_matrices([1.0, 0.0, right], [0.0, 1.0, down])]


def _crop_moves(numbers, pixels):
    moves = tf.cast(tf.floor(numbers * (2 * pixels + 1)), tf.int32)
    return tf.minimum(moves, 2 * pixels)  # a float32 product may round up


def flip(images, numbers):
    """Returns the images of `flip_matrix` without interpolation."""
    batch, height, width, channels = images.shape.as_list()
    flipped = numbers[:, 0] < 0.5
    order = tf.range(tf.shape(images)[0])
    kept, chosen = tf.boolean_mask(order, ~flipped), tf.boolean_mask(order, flipped)
    # Reversing rows has a kernel that is ten times faster for a rank-3 tensor of several channels,
    # and for a rank-2 tensor.
    shape = [-1, width, channels] if channels > 1 else [-1, width]
    rows = tf.reshape(tf.gather(images, chosen), shape)
    mirrored = tf.reshape(tf.reverse(rows, [1]), [-1, height, width, channels])
    mixed = tf.dynamic_stitch([kept, chosen], [tf.gather(images, kept), mirrored])
    return tf.ensure_shape(mixed, [batch, height, width, channels])


def take(images, rows, columns):
    """Returns `[batch, h, w, channels]`: int32 rows `[batch, h]` and columns `[batch, w]`."""
    height, width, channels = images.shape[1:].as_list()
    indices = rows[:, :, tf.newaxis] * width + columns[:, tf.newaxis, :]
    pixels = tf.reshape(images, [-1, height * width, channels])
    taken = tf.gather(pixels, indices, batch_dims=1)
    return tf.ensure_shape(taken, [images.shape[0], *rows.shape[1:], *columns.shape[1:], channels])


def transform(images, matrices, new_size, fill="NEAREST", fill_value=0.0):
    """Returns images moved by matrices, with bilinear interpolation.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      matrices: float32 `[batch, 3, 3]`, see the module's docstring.
      new_size: `(height, width)` of the result.
      fill: "NEAREST" repeats border pixels, "CONSTANT" uses `fill_value`.
      fill_value: value of pixels from outside of the image.
    """
    # In float32: with uint8 the op truncates, and is slower.
    pixels = tf.cast(images, tf.float32)
    moved = _project(pixels, matrices, new_size, "BILINEAR", fill, fill_value)
    moved = tf.ensure_shape(moved, [images.shape[0], *new_size, images.shape.as_list()[-1]])
    return tf.cast(moved + 0.5, tf.uint8)


def _project(images, matrices, new_size, interpolation, fill, fill_value):
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.reshape(matrices, [-1, 9])[:, :8],
        output_shape=new_size,
        fill_value=fill_value,
        interpolation=interpolation,
        fill_mode=fill,
    )


def move_regions(regions, matrices, new_size):
    """Returns masks and boxes moved like their image.

    Args:
      regions: any of `"mask"`, uint8 `[batch, height, width]`; `"boxes"`, float32 `[batch, n, 4]`,
        y0, x0, y1, x1 in pixels, pixel i from i to i + 1; and with boxes `"visible"`, float32
        `[batch, n]`, the visible fraction of their areas.
      matrices: float32 `[batch, 3, 3]`, see the module's docstring.
      new_size: `(height, width)` of the result.

    Returns:
      The same: masks by nearest neighbor, `IGNORED_CLASS` outside of the old image; boxes as the
      bounding boxes of their moved corners, clipped to the image.
    """
    moved = {}
    if "mask" in regions:
        mask = regions["mask"][..., tf.newaxis]
        result = _project(mask, matrices, new_size, "NEAREST", "CONSTANT", float(IGNORED_CLASS))
        moved["mask"] = tf.ensure_shape(result[..., 0], [mask.shape[0], *new_size])
    if "boxes" in regions:
        moved["boxes"], visible = _move_boxes(regions["boxes"], matrices, new_size)
        moved["visible"] = regions["visible"] * visible
    if "mask_frames" in regions:
        low, high = _moved_corners(regions["mask_frames"], matrices)
        moved["mask_frames"] = tf.concat([low[..., ::-1], high[..., ::-1]], axis=-1)
        is_mirrored = (matrices[:, 0, 0] < 0)[:, tf.newaxis, tf.newaxis, tf.newaxis]
        masks = regions["masks"]
        moved["masks"] = tf.where(is_mirrored, masks[..., ::-1], masks)
    return moved


def _move_boxes(boxes, matrices, new_size):
    """Returns boxes `[batch, n, 4]` and the fraction of their areas inside, `[batch, n]`."""
    low, high = _moved_corners(boxes, matrices)
    limit = tf.constant(new_size[::-1], tf.float32)
    inside_low, inside_high = tf.clip_by_value(low, 0.0, limit), tf.clip_by_value(high, 0.0, limit)
    area = tf.reduce_prod(high - low, axis=-1)
    inside = tf.reduce_prod(inside_high - inside_low, axis=-1)
    # From x, y to y, x.
    clipped = tf.concat([inside_low[..., ::-1], inside_high[..., ::-1]], axis=-1)
    return clipped, tf.math.divide_no_nan(inside, area)


def _moved_corners(boxes, matrices):
    """Returns the lowest and highest x, y of moved boxes, `[batch, n, 2]` each, not clipped."""
    y0, x0, y1, x1 = tf.unstack(boxes, axis=-1)
    ones = tf.ones_like(y0)
    corners = [(x0, y0), (x1, y0), (x0, y1), (x1, y1)]
    # Edges are half a pixel off the centers, which the matrices map.
    points = tf.stack([tf.stack([x - 0.5, y - 0.5, ones], -1) for x, y in corners], axis=2)
    moved = tf.einsum("bij,bnkj->bnki", tf.linalg.inv(matrices), points) + 0.5
    return tf.reduce_min(moved, axis=2)[..., :2], tf.reduce_max(moved, axis=2)[..., :2]


def about_center(size, x_row, y_row):
    """Returns the matrices of a linear map whose fixed point is the center of the image."""
    height, width = size
    x, y = (width - 1) / 2, (height - 1) / 2
    return to_matrices(
        [*x_row, x - x_row[0] * x - x_row[1] * y], [*y_row, y - y_row[0] * x - y_row[1] * y]
    )


def to_matrices(x_row, y_row):
    """Returns `[batch, 3, 3]` from the first two rows; at least one entry must be `[batch]`."""
    entries = [*x_row, *y_row, 0.0, 0.0, 1.0]
    batch = tf.zeros_like(next(entry for entry in entries if isinstance(entry, tf.Tensor)))
    return tf.reshape(tf.stack([batch + entry for entry in entries], axis=1), [-1, 3, 3])
