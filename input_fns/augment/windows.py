"""Random crop windows of images of any size; the crops are resized to the model's size."""

from __future__ import annotations

import tensorflow as tf

# Aspect ratio (Szegedy et al. 2015, arXiv:1409.4842, section 6).
_LARGEST_RATIO = 4 / 3


class ResizeCrop:
    """Random resized crop (area AREA to 1, aspect ratio 3/4 to 4/3)."""

    numbers = 4

    def __init__(self, smallest_area):
        self._smallest_area = smallest_area

    def window(self, numbers, size, center_window):
        """Returns int32 `[..., 4]`: y, x, height and width.

        Args:
          numbers: float32 `[..., 4]` in [0, 1): area, aspect ratio, y and x.
          size: height and width of the image.
          center_window: int32 `[4]`, center crop of evaluation; unused.
        """
        del center_window
        height, width = (tf.cast(side, tf.float32) for side in size)
        area, ratio, down, right = tf.unstack(numbers, axis=-1)
        area = (self._smallest_area + area * (1 - self._smallest_area)) * height * width
        ratio = tf.pow(_LARGEST_RATIO, 2 * ratio - 1)
        # A side longer than the image's is clipped, which makes the area smaller.
        high = tf.clip_by_value(tf.round(tf.sqrt(area / ratio)), 1, height)
        wide = tf.clip_by_value(tf.round(tf.sqrt(area * ratio)), 1, width)
        return _placed(down, right, (height, width), high, wide)


class RandomCrop:
    """Random crop as large as the center crop of evaluation."""

    numbers = 2

    def window(self, numbers, size, center_window):
        """Returns int32 `[..., 4]`: y, x, height and width.

        Args:
          numbers: float32 `[..., 2]` in [0, 1): y and x.
          size: height and width of the image.
          center_window: int32 `[4]`, center crop of evaluation.
        """
        height, width = (tf.cast(side, tf.float32) for side in size)
        high, wide = tf.unstack(tf.cast(center_window[2:], tf.float32))
        return _placed(*tf.unstack(numbers, axis=-1), (height, width), high, wide)


def _placed(down, right, size, high, wide):
    # Uniform over all positions; a float32 product may round up to the end.
    height, width = size
    y = tf.minimum(tf.floor(down * (height - high + 1)), height - high)
    x = tf.minimum(tf.floor(right * (width - wide + 1)), width - wide)
    ones = tf.ones_like(y)
    return tf.cast(tf.stack([y, x, high * ones, wide * ones], axis=-1), tf.int32)
