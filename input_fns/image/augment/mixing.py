"""Mixup and CutMix of each image and its label with its neighbor in the batch.

Neighbors are the rows 0 and 1, 2 and 3, and so on: the same on any number of hosts and cores if
each has an even number of rows. The last row of an odd number is not mixed.
"""

from __future__ import annotations

import tensorflow as tf

from input_fns.image.augment import color


def mixup(images, others, share, numbers, alpha):
    """Returns weighted means of both images (Zhang et al. 2017, arXiv:1710.09412).

    Args:
      images: uint8 `[batch, height, width, channels]`.
      others: the neighbors.
      share: float32 `[batch]` in [0, 1], from Beta(alpha, alpha).
      numbers: float32 `[batch, numbers]` in [0, 1).
      alpha: see share.

    Returns:
      The mixed images, and float32 `[batch]`, the weight of the first one's label.
    """
    del numbers, alpha
    weight = tf.reshape(share, [-1, 1, 1, 1])
    mixed = weight * tf.cast(images, tf.float32) + (1 - weight) * tf.cast(others, tf.float32)
    return color.to_uint8(mixed), share


def cutmix(images, others, share, numbers, alpha):
    """Pastes a rectangle of the neighbor (Yun et al. 2019, arXiv:1905.04899), as `mixup`."""
    del alpha
    height, width = images.shape[1:3].as_list()
    side = tf.sqrt(1 - share)
    inside = color.rectangle(
        (height, width), side * height, side * width, numbers[:, 0], numbers[:, 1]
    )
    share = 1 - tf.reduce_mean(tf.cast(inside, tf.float32), axis=[1, 2])
    return tf.where(inside[..., tf.newaxis], others, images), share


def mix(mixers, images, labels, shares, numbers):
    """Mixes each image by one of `mixers`, with equal probability.

    Args:
      mixers: `augmentation.Operation`s, `mixup` and `cutmix`.
      images: uint8 `[batch, height, width, channels]`.
      labels: float32 `[batch, num_classes]`.
      shares: float32 `[batch, len(mixers)]`, samples of each mixer's Beta distribution.
      numbers: float32 `[batch, 1 + sum of the mixers' numbers]` in [0, 1).

    Returns:
      Images and labels with the same dtypes and shapes.
    """
    batch = tf.shape(images)[0]
    rows = tf.range(batch)
    neighbor = tf.minimum(tf.bitwise.bitwise_xor(rows, 1), batch - 1)
    others = tf.gather(images, neighbor)
    chosen = tf.minimum(tf.cast(numbers[:, 0] * len(mixers), tf.int32), len(mixers) - 1)
    mixed, share, column = images, tf.ones_like(numbers[:, 0]), 1
    for i, mixer in enumerate(mixers):
        own = numbers[:, column : column + mixer.numbers]
        column += mixer.numbers
        mixed_images, mixed_share = mixer(images, others, shares[:, i], own)
        is_chosen = tf.equal(chosen, i)
        mixed = tf.where(tf.reshape(is_chosen, [-1, 1, 1, 1]), mixed_images, mixed)
        share = tf.where(is_chosen, mixed_share, share)
    share = share[:, tf.newaxis]
    return mixed, share * labels + (1 - share) * tf.gather(labels, neighbor)
