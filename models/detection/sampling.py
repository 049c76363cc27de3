"""Random samples of anchors and proposals with static shapes, a function of the step's seeds."""

from __future__ import annotations

import tensorflow as tf

from common.constants import DROPOUT_SEED
from models.layers import dropout

_INTEGERS = 2.0**24  # float32 numbers in [0, 1) of equal distance


def uniform(features, keys, stream):
    """Returns random numbers, float32 `[batch, n]` in [0, 1).

    Those of an example are a function of its seed and the keys, so they do not depend on how the
    global batch is distributed over cores.

    Args:
      features: with `dropout.seeded`'s "dropout_seed", int32 `[batch, 2]`; without it the numbers
        are the same in each step.
      keys: int32 `[n]` or `[batch, n]`.
      stream: int, another one for each use.
    """
    if DROPOUT_SEED in features:
        seeds = tf.cast(features[DROPOUT_SEED], tf.uint32)
    else:
        seeds = tf.zeros([dropout.shape_of(features["image"])[0], 2], tf.uint32)
    keys = tf.bitcast(keys if keys.shape.rank == 2 else keys[tf.newaxis], tf.uint32)
    bits = _mix(keys + tf.constant(stream, tf.uint32) * tf.constant(0x9E3779B9, tf.uint32))
    for column in range(2):
        bits = _mix(tf.bitwise.bitwise_xor(bits, _mix(seeds[:, column, tf.newaxis])))
    high = tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32))
    # TPUs convert int32, not uint32, to float32 exactly.
    return tf.cast(tf.cast(high, tf.int32), tf.float32) / _INTEGERS


def _mix(x):
    """Returns a permutation of uint32 in which each bit depends on all bits.

    The finalizer of MurmurHash3 (Appleby 2011).
    """
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(shift, tf.uint32)))
        x *= tf.constant(factor, tf.uint32)
    return x


def sample(is_positive, is_negative, numbers, count, max_positives):
    """Chooses positives, at most `max_positives`, and negatives for the remaining places.

    Args:
      is_positive: bool `[batch, n]`.
      is_negative: bool `[batch, n]`.
      numbers: float32 `[batch, n]` of `uniform`; the largest ones are chosen.
      count: int, places per image, at most n.
      max_positives: int, at most `count`.

    Returns:
      int32 `[batch, count]`, indices of the chosen ones, positives first; and bool
      `[batch, count]`, False for places that are left, whose index is any.
    """
    best, _ = tf.math.top_k(tf.where(is_positive, numbers, -1.0), max_positives)
    is_chosen = is_positive & (numbers >= best[:, -1:])
    order = tf.where(is_chosen, 1 + numbers, tf.where(is_negative, numbers, -1.0))
    order, index = tf.math.top_k(order, count)
    return index, order >= 0
