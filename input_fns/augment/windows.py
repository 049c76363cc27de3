"""Random windows of images of any size, which are then brought to the size that the model sees."""

from __future__ import annotations

import tensorflow as tf

# The proportions of a window (Szegedy et al. 2015, arXiv:1409.4842, section 6).
_LARGEST_RATIO = 4 / 3


class ResizeCrop:
    """Of random area and proportions, somewhere."""

    numbers = 4

    def __init__(self, smallest_area):
        self._smallest_area = smallest_area

    def window(self, numbers, size, center_window):
        """Returns int32 `[..., 4]`: y, x, height and width.

        Args:
          numbers: float32 `[..., 4]` in [0, 1): area, proportions, and the place.
          size: height and width of the image.
          center_window: int32 `[4]`, what evaluation sees of the image; not used.
        """
        del center_window
        height, width = (tf.cast(side, tf.float32) for side in size)
        area, ratio, down, right = tf.unstack(numbers, axis=-1)
        area = (self._smallest_area + area * (1 - self._smallest_area)) * height * width
        ratio = tf.pow(_LARGEST_RATIO, 2 * ratio - 1)
        # Too long a side is cut to the image's, and the window is then smaller than asked for.
        high = tf.clip_by_value(tf.round(tf.sqrt(area / ratio)), 1, height)
        wide = tf.clip_by_value(tf.round(tf.sqrt(area * ratio)), 1, width)
        return _placed(down, right, (height, width), high, wide)


class RandomCrop:
    """As large as what evaluation sees of the image, somewhere."""

    numbers = 2

    def window(self, numbers, size, center_window):
        """Returns int32 `[..., 4]`: y, x, height and width.

        Args:
          numbers: float32 `[..., 2]` in [0, 1): the place.
          size: height and width of the image.
          center_window: int32 `[4]`, what evaluation sees of the image.
        """
        height, width = (tf.cast(side, tf.float32) for side in size)
        high, wide = tf.unstack(tf.cast(center_window[2:], tf.float32))
        return _placed(*tf.unstack(numbers, axis=-1), (height, width), high, wide)


def _placed(down, right, size, high, wide):
    # Each place in the room that is left is as likely; the product may round up to the end.
    height, width = size
    y = tf.minimum(tf.floor(down * (height - high + 1)), height - high)
    x = tf.minimum(tf.floor(right * (width - wide + 1)), width - wide)
    ones = tf.ones_like(y)
    return tf.cast(tf.stack([y, x, high * ones, wide * ones], axis=-1), tf.int32)
