"""Mixup and CutMix: each image with its neighbour in the batch, and so their labels.

Neighbours are the rows 0 and 1, 2 and 3, and so on: the same on any number of hosts and cores, as
long as each has an even number of rows. The last of an odd number stays as it is.
"""

from __future__ import annotations

import tensorflow as tf

from input_fns.augment import color


class Mixup:
    """Both images at once (Zhang et al. 2017, arXiv:1710.09412)."""

    numbers = 0

    def __init__(self, alpha):
        self.alpha = alpha

    def __call__(self, images, others, share, numbers):
        """Returns the mixed images, and float32 `[batch]`, the first one's share of each.

        Args:
          images: uint8 `[batch, height, width, channels]`.
          others: the same, of the neighbours.
          share: float32 `[batch]` in [0, 1], by Beta(alpha, alpha).
          numbers: float32 `[batch, self.numbers]`.
        """
        del numbers
        weight = tf.reshape(share, [-1, 1, 1, 1])
        mixed = weight * tf.cast(images, tf.float32) + (1 - weight) * tf.cast(others, tf.float32)
        return color.to_uint8(mixed), share


class CutMix:
    """A rectangle of the other image pasted in (Yun et al. 2019, arXiv:1905.04899)."""

    numbers = 2

    def __init__(self, alpha):
        self.alpha = alpha

    def __call__(self, images, others, share, numbers):
        """Like `Mixup`; the share is that of the pixels."""
        height, width = images.shape[1:3].as_list()
        side = tf.sqrt(1 - share)
        inside = color.rectangle(
            (height, width), side * height, side * width, numbers[:, 0], numbers[:, 1]
        )
        share = 1 - tf.reduce_mean(tf.cast(inside, tf.float32), axis=[1, 2])
        return tf.where(inside[..., tf.newaxis], others, images), share


def mix(words, images, labels, shares, numbers):
    """Mixes each image by one of `words`, all as likely.

    Args:
      words: `Mixup` and `CutMix` objects.
      images: uint8 `[batch, height, width, channels]`.
      labels: float32 `[batch, num_classes]`.
      shares: float32 `[batch, len(words)]`, of each word's Beta.
      numbers: float32 `[batch, 1 + sum of the words' numbers]` in [0, 1).

    Returns:
      Images and labels like those given.
    """
    batch = tf.shape(images)[0]
    rows = tf.range(batch)
    neighbour = tf.minimum(tf.bitwise.bitwise_xor(rows, 1), batch - 1)
    others = tf.gather(images, neighbour)
    chosen = tf.minimum(tf.cast(numbers[:, 0] * len(words), tf.int32), len(words) - 1)
    mixed, share, column = images, tf.ones_like(numbers[:, 0]), 1
    for i, word in enumerate(words):
        own = numbers[:, column : column + word.numbers]
        column += word.numbers
        images_by_word, share_by_word = word(images, others, shares[:, i], own)
        by_this = tf.equal(chosen, i)
        mixed = tf.where(tf.reshape(by_this, [-1, 1, 1, 1]), images_by_word, mixed)
        share = tf.where(by_this, share_by_word, share)
    share = share[:, tf.newaxis]
    return mixed, share * labels + (1 - share) * tf.gather(labels, neighbour)
