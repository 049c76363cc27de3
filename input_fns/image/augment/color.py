"""Color jitter and random erasing; see `augmentation.Operation`."""

from __future__ import annotations

import tensorflow as tf

# Weights of red, green and blue in grey (ITU-R BT.601), as in Pillow.
_GREY = (0.299, 0.587, 0.114)
_ERASED_AREA, _LARGEST_RATIO = (0.02, 1 / 3), 3.3


def jitter(images, numbers, strength):
    """Changes brightness, contrast and saturation by random factors, then clips once."""
    factors = 1 + (2 * numbers - 1) * strength
    return adjust(images, *tf.unstack(factors, axis=1))


def adjust(images, brightness, contrast, saturation):
    """Returns uint8 `[batch, height, width, channels]`, adjusted by factors float32 `[batch]`.

    A factor of 1 is the identity; 0 gives black, the mean grey, and grey (Pillow's ImageEnhance).
    """
    brightness, contrast, saturation = (
        tf.reshape(factor, [-1, 1, 1, 1]) for factor in (brightness, contrast, saturation)
    )
    pixels = tf.cast(images, tf.float32)
    greys = grey(pixels)
    mean = tf.reduce_mean(greys, axis=[1, 2, 3], keepdims=True)
    # In sequence: a linear combination of the pixel, its grey and the mean grey.
    gain = brightness * contrast
    constant = brightness * (1 - contrast) * mean
    return to_uint8(gain * saturation * pixels + (gain * (1 - saturation) * greys + constant))


def grey(pixels):
    """Returns float32 `[batch, height, width, 1]` of 1 or 3 channels."""
    if pixels.shape[-1] == 1:
        return pixels
    return tf.tensordot(pixels, tf.constant(_GREY), 1)[..., tf.newaxis]


def to_uint8(pixels):
    """Returns float32 pixels clipped and rounded."""
    return tf.cast(tf.clip_by_value(pixels, 0.0, 255.0) + 0.5, tf.uint8)


def erase(images, numbers, probability):
    """Sets a rectangle of each image to 0 (Zhong et al. 2017, arXiv:1708.04896)."""
    size = images.shape[1:3].as_list()
    erased, area, ratio, down, right = tf.unstack(numbers, axis=1)
    low, high = _ERASED_AREA
    area = (low + area * (high - low)) * size[0] * size[1]
    ratio = tf.pow(_LARGEST_RATIO, 2 * ratio - 1)
    is_erased = rectangle(size, tf.sqrt(area * ratio), tf.sqrt(area / ratio), down, right)
    is_erased &= tf.reshape(erased < probability, [-1, 1, 1])
    return tf.where(is_erased[..., tf.newaxis], tf.zeros_like(images), images)


def rectangle(size, high, wide, down, right):
    """Returns bool `[batch, height, width]`, True inside a rectangle of each image.

    Args:
      size: height and width of the images.
      high: float32 `[batch]`, heights of the rectangles; rounded, and clipped to the image's.
      wide: float32 `[batch]`, widths.
      down: float32 `[batch]` in [0, 1), vertical positions: 0 top, 1 bottom.
      right: float32 `[batch]` in [0, 1), horizontal positions.
    """
    ranges = []
    for length, side, place in ((size[0], high, down), (size[1], wide, right)):
        side = tf.clip_by_value(tf.round(side), 0, length)
        first = tf.minimum(tf.floor(place * (length - side + 1)), length - side)
        ranges.append((length, first, side))
    return inside(*ranges)


def inside(vertical, horizontal):
    """Returns bool `[batch, height, width]`, True inside a rectangle of each image.

    Args:
      vertical: height of the images, and float32 `[batch]`, the first row and the number of rows.
      horizontal: the same of the columns.
    """
    rows, columns = (
        (tf.range(length, dtype=tf.float32) >= first[:, tf.newaxis])
        & (tf.range(length, dtype=tf.float32) < (first + side)[:, tf.newaxis])
        for length, first, side in (vertical, horizontal)
    )
    return rows[:, :, tf.newaxis] & columns[:, tf.newaxis, :]
