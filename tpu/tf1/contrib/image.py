"""tf.contrib.image: projective transforms of images."""

from __future__ import annotations

import tensorflow as tf

__all__ = [
    "angles_to_projective_transforms",
    "compose_transforms",
    "flat_transforms_to_matrices",
    "matrices_to_flat_transforms",
    "rotate",
    "transform",
    "translate",
    "translations_to_projective_transforms",
]


def transform(images, transforms, interpolation="NEAREST", output_shape=None, name=None):
    """Applies projective transforms; what comes from outside of an image is 0.

    Args:
      images: [num_images, height, width, channels], [height, width, channels] or [height, width].
      transforms: float, [8] or [num_images, 8]. [a0, a1, a2, b0, b1, b2, c0, c1] maps the output
        point (x, y) to the input point ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k) with
        k = c0 x + c1 y + 1.
      interpolation: "NEAREST" or "BILINEAR".
      output_shape: [height, width] of the result; None for that of the images.
      name: name scope.
    """
    with tf.name_scope(name or "transform"):
        images = tf.convert_to_tensor(images)
        batch = _as_batch(images)
        transforms = tf.convert_to_tensor(transforms, tf.float32)
        if transforms.shape.rank not in (1, 2):
            raise TypeError(f"Transforms should have rank 1 or 2, not {transforms.shape}.")
        result = tf.raw_ops.ImageProjectiveTransformV2(
            images=batch,
            transforms=transforms[None] if transforms.shape.rank == 1 else transforms,
            output_shape=_height_and_width(batch) if output_shape is None else output_shape,
            interpolation=interpolation.upper(),
        )
        rank = images.shape.rank
        return result if rank == 4 else result[0] if rank == 3 else result[0, :, :, 0]


def _as_batch(images):
    rank = images.shape.rank
    if rank not in (2, 3, 4):
        raise TypeError(f"Images should have rank between 2 and 4, not {images.shape}.")
    return images if rank == 4 else images[None] if rank == 3 else images[None, :, :, None]


def _height_and_width(images):
    sizes = images.shape[1:3]
    return sizes.as_list() if sizes.is_fully_defined() else tf.shape(images)[1:3]


def rotate(images, angles, interpolation="NEAREST", name=None):
    """Rotates images counterclockwise about their centers.

    Args:
      images: see `transform`.
      angles: float, in radians, scalar or [num_images].
      interpolation: see `transform`.
      name: name scope.
    """
    with tf.name_scope(name or "rotate"):
        images = tf.convert_to_tensor(images)
        height, width = tf.unstack(tf.cast(_height_and_width(_as_batch(images)), tf.float32))
        transforms = angles_to_projective_transforms(angles, height, width)
        return transform(images, transforms, interpolation)


def translate(images, translations, interpolation="NEAREST", name=None):
    """Moves images by [dx, dy] or [num_images, 2] pixels."""
    transforms = translations_to_projective_transforms(translations)
    return transform(images, transforms, interpolation, name=name or "translate")


def angles_to_projective_transforms(angles, image_height, image_width, name=None):
    """Returns the transforms [num_images, 8] of rotations about the center."""
    with tf.name_scope(name or "angles_to_projective_transforms"):
        angles = tf.reshape(tf.convert_to_tensor(angles, tf.float32), [-1])
        x_last = tf.cast(image_width, tf.float32) - 1
        y_last = tf.cast(image_height, tf.float32) - 1
        cos, sin, zeros = tf.cos(angles), tf.sin(angles), tf.zeros_like(angles)
        x_offset = (x_last - (cos * x_last - sin * y_last)) / 2
        y_offset = (y_last - (sin * x_last + cos * y_last)) / 2
        return tf.stack([cos, -sin, x_offset, sin, cos, y_offset, zeros, zeros], axis=1)


def translations_to_projective_transforms(translations, name=None):
    """Returns the transforms [num_images, 8] of translations."""
    with tf.name_scope(name or "translations_to_projective_transforms"):
        translations = tf.convert_to_tensor(translations, tf.float32)
        if translations.shape.rank not in (1, 2):
            raise TypeError(f"Translations should have rank 1 or 2, not {translations.shape}.")
        x, y = tf.unstack(tf.reshape(translations, [-1, 2]), axis=1)
        ones, zeros = tf.ones_like(x), tf.zeros_like(x)
        return tf.stack([ones, zeros, -x, zeros, ones, -y, zeros, zeros], axis=1)


def compose_transforms(*transforms):
    """Returns the transforms [num_images, 8] that equal the given ones in order."""
    if not transforms:
        raise ValueError("compose_transforms: no transforms given")
    composed = flat_transforms_to_matrices(transforms[0])
    for other in transforms[1:]:
        composed = tf.matmul(composed, flat_transforms_to_matrices(other))
    return matrices_to_flat_transforms(composed)


def flat_transforms_to_matrices(transforms):
    """Returns the 3x3 matrices [num_images, 3, 3] of transforms."""
    transforms = tf.reshape(tf.convert_to_tensor(transforms, tf.float32), [-1, 8])
    ones = tf.ones([tf.shape(transforms)[0], 1])
    return tf.reshape(tf.concat([transforms, ones], axis=1), [-1, 3, 3])


def matrices_to_flat_transforms(transform_matrices):
    """Returns the transforms [num_images, 8] of 3x3 matrices."""
    flat = tf.reshape(tf.convert_to_tensor(transform_matrices, tf.float32), [-1, 9])
    return (flat / flat[:, 8:])[:, :8]
