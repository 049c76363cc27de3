"""RandAugment (Cubuk et al. 2019, arXiv:1909.13719), a whole batch at a time.

The images of a batch are dealt to the fourteen operations, each works on its share, and the batch
is put together again. What the operations do, and how far a level goes, is as in torchvision, which
builds on Pillow.
"""

from __future__ import annotations

import math

import tensorflow as tf

from input_fns.augment import color, geometry

_MAX_LEVEL = 10
_GREYED = 128.0
_MOVE = 150 / 331
_ANGLE = math.radians(30)


class RandAugment:
    """Some operations, one after the other, each image its own."""

    def __init__(self, count, level):
        self._count, self._strength = int(count), level / _MAX_LEVEL
        self.numbers = 2 * self._count

    def __call__(self, images, numbers):
        """Returns images like `images`."""
        for i in range(self._count):
            which, sign = tf.unstack(numbers[:, 2 * i : 2 * i + 2], axis=1)
            which = tf.minimum(tf.cast(which * len(OPERATIONS), tf.int32), len(OPERATIONS) - 1)
            images = self._one_each(images, which, tf.where(sign < 0.5, -1.0, 1.0))
        return images

    def _one_each(self, images, which, signs):
        count = len(OPERATIONS)
        shares = tf.dynamic_partition(images, which, count)
        shares_of_signs = tf.dynamic_partition(signs, which, count)
        places = tf.dynamic_partition(tf.range(tf.shape(images)[0]), which, count)
        done = [
            operation(share, self._strength * share_of_signs)
            for operation, share, share_of_signs in zip(
                OPERATIONS.values(), shares, shares_of_signs
            )
        ]
        return tf.ensure_shape(tf.dynamic_stitch(places, done), images.shape)


def identity(images, strength):
    """Returns the images."""
    del strength
    return images


def shear_x(images, strength):
    """Sheared by up to 0.3 along the rows, about the middle."""
    return _linear(images, [1.0, -0.3 * strength], [0.0, 1.0])


def shear_y(images, strength):
    """Sheared by up to 0.3 along the columns, about the middle."""
    return _linear(images, [1.0, 0.0], [-0.3 * strength, 1.0])


def translate_x(images, strength):
    """Moved by up to 150/331 of the width."""
    return _moved(images, strength * (_MOVE * images.shape.as_list()[2]), 0.0)


def translate_y(images, strength):
    """Moved by up to 150/331 of the height."""
    return _moved(images, 0.0, strength * (_MOVE * images.shape.as_list()[1]))


def rotate(images, strength):
    """Turned by up to 30 degrees."""
    angle = strength * _ANGLE
    sine, cosine = tf.sin(angle), tf.cos(angle)
    return _linear(images, [cosine, -sine], [sine, cosine])


def brightness(images, strength):
    """Brightness times 1 - 0.9 to 1 + 0.9."""
    ones = tf.ones_like(strength)
    return color.adjust(images, 1 + 0.9 * strength, ones, ones)


def contrast(images, strength):
    """Contrast times 1 - 0.9 to 1 + 0.9."""
    ones = tf.ones_like(strength)
    return color.adjust(images, ones, 1 + 0.9 * strength, ones)


def saturation(images, strength):
    """Saturation times 1 - 0.9 to 1 + 0.9."""
    ones = tf.ones_like(strength)
    return color.adjust(images, ones, ones, 1 + 0.9 * strength)


def sharpness(images, strength):
    """Blended with its smoothed self, or away from it, by up to 0.9; the border stays."""
    pixels = tf.cast(images, tf.float32)
    middle = pixels[:, 1:-1, 1:-1]
    # A mean of 3x3 pixels, the one in the middle counted five times. No convolution: of a share
    # without images oneDNN's gives a wrong shape.
    sums = pixels[:, :-2] + pixels[:, 1:-1] + pixels[:, 2:]
    sums = sums[:, :, :-2] + sums[:, :, 1:-1] + sums[:, :, 2:]
    smooth = tf.round((sums + 4 * middle) / 13)
    difference = tf.pad(middle - smooth, [[0, 0], [1, 1], [1, 1], [0, 0]])
    return color.to_uint8(pixels + 0.9 * tf.reshape(strength, [-1, 1, 1, 1]) * difference)


def posterize(images, strength):
    """As few as 4 bits a channel."""
    bits = 8 - tf.cast(tf.round(4 * tf.abs(strength)), tf.int32)
    masks = tf.constant([(0xFF << (8 - kept)) & 0xFF for kept in range(9)], tf.uint8)
    return tf.bitwise.bitwise_and(images, tf.reshape(tf.gather(masks, bits), [-1, 1, 1, 1]))


def solarize(images, strength):
    """Pixels at or above a threshold, 256 down to 0, are inverted."""
    threshold = tf.reshape(256 * (1 - tf.abs(strength)), [-1, 1, 1, 1])
    return tf.where(tf.cast(images, tf.float32) >= threshold, 255 - images, images)


def autocontrast(images, strength):
    """Each channel stretched to 0..255."""
    del strength
    pixels = tf.cast(images, tf.float32)
    low = tf.reduce_min(pixels, axis=[1, 2], keepdims=True)
    high = tf.reduce_max(pixels, axis=[1, 2], keepdims=True)
    # Pillow cuts the fraction off; the little more keeps what is whole from falling below.
    stretched = tf.floor((pixels - low) * (255 / tf.maximum(high - low, 1)) + 1e-3)
    return tf.cast(tf.where(high > low, stretched, pixels), tf.uint8)


def equalize(images, strength):
    """Each channel's histogram made flat."""
    del strength
    _, height, width, channels = images.shape.as_list()
    flat = tf.cast(tf.transpose(images, [0, 3, 1, 2]), tf.int32)
    flat = tf.reshape(flat, [-1, height * width])
    counts = tf.math.bincount(flat, minlength=256, maxlength=256, axis=-1)
    last = tf.reduce_max(tf.where(counts > 0, tf.range(256), 0), axis=1)
    step = (height * width - tf.gather(counts, last, batch_dims=1)) // 255
    step = step[:, tf.newaxis]
    before = tf.cumsum(counts, axis=1, exclusive=True)
    table = (before + step // 2) // tf.maximum(step, 1)
    table = tf.where(step > 0, tf.minimum(table, 255), tf.range(256))
    equal = tf.gather(table, flat, batch_dims=1)
    equal = tf.transpose(tf.reshape(equal, [-1, channels, height, width]), [0, 2, 3, 1])
    return tf.cast(equal, tf.uint8)


OPERATIONS = {
    "identity": identity,
    "shear_x": shear_x,
    "shear_y": shear_y,
    "translate_x": translate_x,
    "translate_y": translate_y,
    "rotate": rotate,
    "brightness": brightness,
    "color": saturation,
    "contrast": contrast,
    "sharpness": sharpness,
    "posterize": posterize,
    "solarize": solarize,
    "autocontrast": autocontrast,
    "equalize": equalize,
}


def _linear(images, x_row, y_row):
    size = images.shape[1:3].as_list()
    matrices = geometry.about_middle(size, x_row, y_row)
    return geometry.transform(images, matrices, size, "CONSTANT", _GREYED)


def _moved(images, right, down):
    matrices = geometry.matrix_of([1.0, 0.0, -right], [0.0, 1.0, -down])
    return geometry.transform(images, matrices, images.shape[1:3].as_list(), "CONSTANT", _GREYED)
