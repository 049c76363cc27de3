"""Flip, crop, shift and rotation: where each pixel comes from.

Neighbouring words become one transform, and each image is interpolated once.
"""

from __future__ import annotations

import math

import tensorflow as tf


class Flip:
    """Left and right changed where the number is below one half."""

    numbers = 1

    def matrix(self, numbers, size):
        """See `transform`."""
        _, width = size
        sign = tf.where(numbers[:, 0] < 0.5, -1.0, 1.0)
        return matrix_of([sign, 0.0, (width - 1) * (1 - sign) / 2], [0.0, 1.0, 0.0])


class Shift:
    """Moved by up to a fraction of the height and of the width; the border's pixels repeat."""

    numbers = 2

    def __init__(self, fraction):
        self._fraction = fraction

    def matrix(self, numbers, size):
        """See `transform`."""
        height, width = size
        down, right = tf.unstack((2 * numbers - 1) * self._fraction, axis=1)
        return matrix_of([1.0, 0.0, right * width], [0.0, 1.0, down * height])


class Rotate:
    """Turned about the middle by up to some degrees; the border's pixels repeat."""

    numbers = 1

    def __init__(self, degrees):
        self._radians = math.radians(degrees)

    def matrix(self, numbers, size):
        """See `transform`."""
        angle = (2 * numbers[:, 0] - 1) * self._radians
        sine, cosine = tf.sin(angle), tf.cos(angle)
        return about_middle(size, [cosine, -sine], [sine, cosine])


class Crop:
    """Padded with zeros and cut out again; pixels move by whole numbers and stay as they are."""

    numbers = 2

    def __init__(self, pixels):
        self._pixels = int(pixels)

    def __call__(self, images, numbers):
        """Returns images like `images`."""
        pad = self._pixels
        height, width = images.shape[1:3].as_list()
        moves = tf.cast(tf.floor(numbers * (2 * pad + 1)), tf.int32)
        moves = tf.minimum(moves, 2 * pad)  # a float32 product may round up
        rows = moves[:, 0, tf.newaxis] + tf.range(height)
        columns = moves[:, 1, tf.newaxis] + tf.range(width)
        padded = tf.pad(images, [[0, 0], [pad, pad], [pad, pad], [0, 0]])
        return take(padded, rows, columns)


def flipped(images, numbers):
    """Returns the images of `Flip` alone, which needs no interpolation."""
    batch, height, width, channels = images.shape.as_list()
    # Of three dimensions the reversal of rows has a kernel of its own, ten times as fast.
    rows = tf.reshape(images, [-1, width, channels])
    mirrored = tf.reshape(tf.reverse(rows, [1]), [-1, height, width, channels])
    count = tf.shape(images)[0]
    chosen = tf.where(numbers[:, 0] < 0.5, count, 0) + tf.range(count)
    taken = tf.gather(tf.concat([images, mirrored], axis=0), chosen)
    return tf.ensure_shape(taken, [batch, height, width, channels])


def take(images, rows, columns):
    """Returns the pixels at int32 rows `[batch, h]` and columns `[batch, w]` of each image."""
    height, width, channels = images.shape[1:].as_list()
    places = rows[:, :, tf.newaxis] * width + columns[:, tf.newaxis, :]
    pixels = tf.reshape(images, [-1, height * width, channels])
    taken = tf.gather(pixels, places, batch_dims=1)
    return tf.ensure_shape(taken, [images.shape[0], *rows.shape[1:], *columns.shape[1:], channels])


def transform(images, matrices, new_size, fill="NEAREST", fill_value=0.0):
    """Returns images whose pixels come from where the matrices say, bilinear.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      matrices: float32 `[batch, 3, 3]`, from (x, y, 1) of a new pixel to (x, y, 1) in the image.
        The middle of the first pixel is (0, 0).
      new_size: `(height, width)` of the result.
      fill: "NEAREST", the border's pixels repeat, or "CONSTANT", with `fill_value`.
      fill_value: outside of the image.
    """
    # In float32: of uint8 the operation would cut the fraction off, and be slower.
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.cast(images, tf.float32),
        transforms=tf.reshape(matrices, [-1, 9])[:, :8],
        output_shape=new_size,
        fill_value=fill_value,
        interpolation="BILINEAR",
        fill_mode=fill,
    )
    moved = tf.ensure_shape(moved, [images.shape[0], *new_size, images.shape.as_list()[-1]])
    return tf.cast(moved + 0.5, tf.uint8)


def about_middle(size, x_row, y_row):
    """Returns the matrices of a linear map whose fixed point is the middle of the image."""
    height, width = size
    x, y = (width - 1) / 2, (height - 1) / 2
    return matrix_of(
        [*x_row, x - x_row[0] * x - x_row[1] * y], [*y_row, y - y_row[0] * x - y_row[1] * y]
    )


def matrix_of(x_row, y_row):
    """Returns float32 `[batch, 3, 3]` of its first two rows; at least one entry is `[batch]`."""
    entries = [*x_row, *y_row, 0.0, 0.0, 1.0]
    batch = tf.zeros_like(next(entry for entry in entries if isinstance(entry, tf.Tensor)))
    return tf.reshape(tf.stack([batch + entry for entry in entries], axis=1), [-1, 3, 3])
