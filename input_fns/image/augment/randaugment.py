"""RandAugment (Cubuk et al. 2019, arXiv:1909.13719) on whole batches.

The batch is partitioned over the fourteen operations and stitched together again. The operations
and their magnitudes are those of torchvision, which uses Pillow.
"""

from __future__ import annotations

import math

import tensorflow as tf

from input_fns.image.augment import color, geometry

_MAX_LEVEL = 10
_GREY = 128.0
_MOVE = 150 / 331
_ANGLE = math.radians(30)


def randaugment(images, numbers, count, level):
    """Returns the images of `count` random operations in sequence, different for each image."""
    strength, num_operations = level / _MAX_LEVEL, len(OPERATIONS)
    for which, signs in _choices(numbers, count):
        parts = tf.dynamic_partition(images, which, num_operations)
        signs_of_parts = tf.dynamic_partition(signs, which, num_operations)
        rows = tf.dynamic_partition(tf.range(tf.shape(images)[0]), which, num_operations)
        done = [
            operation(part, strength * part_signs)
            for operation, part, part_signs in zip(OPERATIONS.values(), parts, signs_of_parts)
        ]
        images = tf.ensure_shape(tf.dynamic_stitch(rows, done), images.shape)
    return images


def region_matrices(numbers, size, count, level):
    """Returns the matrices that move masks and boxes like `randaugment`, in order."""
    found = []
    for which, signs in _choices(numbers, count):
        matrices = tf.eye(3, batch_shape=tf.shape(which))
        for i, name in enumerate(OPERATIONS):
            if name in _MATRICES:
                chosen = tf.equal(which, i)[:, tf.newaxis, tf.newaxis]
                moved = _MATRICES[name](size, level / _MAX_LEVEL * signs)
                matrices = tf.where(chosen, moved, matrices)
        found.append(matrices)
    return found


def _choices(numbers, count):
    """Yields pairs of operation indices, int32 `[batch]`, and signs, float32 `[batch]`."""
    for pair in tf.split(numbers, count, axis=1) if count > 1 else [numbers]:
        which, sign = tf.unstack(pair, axis=1)
        which = tf.minimum(tf.cast(which * len(OPERATIONS), tf.int32), len(OPERATIONS) - 1)
        yield which, tf.where(sign < 0.5, -1.0, 1.0)


def shear_x(size, strength):
    """Returns matrices of a horizontal shear by up to 0.3."""
    return geometry.about_center(size, [1.0, -0.3 * strength], [0.0, 1.0])


def shear_y(size, strength):
    """Returns matrices of a vertical shear by up to 0.3."""
    return geometry.about_center(size, [1.0, 0.0], [-0.3 * strength, 1.0])


def translate_x(size, strength):
    """Returns matrices of a translation by up to 150/331 of the width."""
    return geometry.to_matrices([1.0, 0.0, -(strength * (_MOVE * size[1]))], [0.0, 1.0, 0.0])


def translate_y(size, strength):
    """Returns matrices of a translation by up to 150/331 of the height."""
    return geometry.to_matrices([1.0, 0.0, 0.0], [0.0, 1.0, -(strength * (_MOVE * size[0]))])


def rotate(size, strength):
    """Returns matrices of a rotation by up to 30 degrees."""
    angle = strength * _ANGLE
    sine, cosine = tf.sin(angle), tf.cos(angle)
    return geometry.about_center(size, [cosine, -sine], [sine, cosine])


def sharpness(images, strength):
    """Blends with a smoothed image, or away from it, by up to 0.9; keeps the border."""
    if min(images.shape.as_list()[1:3]) <= 2:
        return images  # all pixels are the border
    pixels = tf.cast(images, tf.float32)
    middle = pixels[:, 1:-1, 1:-1]
    # Mean of 3x3 pixels with weight 5 in the center. No convolution: oneDNN's returns a wrong shape
    # for a batch of 0.
    sums = pixels[:, :-2] + pixels[:, 1:-1] + pixels[:, 2:]
    sums = sums[:, :, :-2] + sums[:, :, 1:-1] + sums[:, :, 2:]
    smooth = tf.round((sums + 4 * middle) / 13)
    difference = tf.pad(middle - smooth, [[0, 0], [1, 1], [1, 1], [0, 0]])
    return color.to_uint8(pixels + 0.9 * tf.reshape(strength, [-1, 1, 1, 1]) * difference)


def posterize(images, strength):
    """Keeps 4 to 8 bits per channel."""
    bits = 8 - tf.cast(tf.round(4 * tf.abs(strength)), tf.int32)
    masks = tf.constant([(0xFF << (8 - kept)) & 0xFF for kept in range(9)], tf.uint8)
    return tf.bitwise.bitwise_and(images, tf.reshape(tf.gather(masks, bits), [-1, 1, 1, 1]))


def solarize(images, strength):
    """Inverts pixels at or above a threshold, 256 down to 0."""
    threshold = tf.reshape(256 * (1 - tf.abs(strength)), [-1, 1, 1, 1])
    return tf.where(tf.cast(images, tf.float32) >= threshold, 255 - images, images)


def autocontrast(images, strength):
    """Stretches each channel to 0..255."""
    del strength
    pixels = tf.cast(images, tf.float32)
    low = tf.reduce_min(pixels, axis=[1, 2], keepdims=True)
    high = tf.reduce_max(pixels, axis=[1, 2], keepdims=True)
    # Pillow truncates; 1e-3 keeps integers from rounding down.
    stretched = tf.floor((pixels - low) * (255 / tf.maximum(high - low, 1)) + 1e-3)
    return tf.cast(tf.where(high > low, stretched, pixels), tf.uint8)


def equalize(images, strength):
    """Equalizes the histogram of each channel."""
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


def _scaled(place):
    """Returns an operation that scales the brightness, contrast or saturation by 0.1 to 1.9."""

    def scale(images, strength):
        factors = [tf.ones_like(strength)] * 3
        factors[place] = 1 + 0.9 * strength
        return color.adjust(images, *factors)

    return scale


def _moved_by(matrices):
    """Returns an operation on images from a function of `(size, strength)` to matrices."""

    def move(images, strength):
        size = images.shape[1:3].as_list()
        return geometry.transform(images, matrices(size, strength), size, "CONSTANT", _GREY)

    return move


_MATRICES = {
    "shear_x": shear_x,
    "shear_y": shear_y,
    "translate_x": translate_x,
    "translate_y": translate_y,
    "rotate": rotate,
}
OPERATIONS = {
    "identity": lambda images, strength: images,
    **{name: _moved_by(matrices) for name, matrices in _MATRICES.items()},
    "brightness": _scaled(0),
    "color": _scaled(2),
    "contrast": _scaled(1),
    "sharpness": sharpness,
    "posterize": posterize,
    "solarize": solarize,
    "autocontrast": autocontrast,
    "equalize": equalize,
}
