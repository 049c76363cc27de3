"""Stateless dropout: a resumed run repeats the random numbers of an uninterrupted one.

The seeds are a feature of each batch, `features["dropout_seed"]`. They depend on the seed of the
run and on the step, and differ between replicas and between micro-batches. The state of
`tf.nn.dropout` is not saved in checkpoints.
"""

from __future__ import annotations

import contextlib
import threading

import tensorflow as tf

from common.constants import DROPOUT_SEED
from models.layers import device, fusion

# A tf.distribute strategy builds each replica in a thread, all in one graph.
_THREAD = threading.local()
_BITS = 16  # per random number


@contextlib.contextmanager
def seeded(features):
    """Uses the seeds of a batch for every `dropout` inside the `with`.

    Args:
      features: if it has a "dropout_seed", int32 `[batch, 2]`, the seed of the first example is
        used; otherwise random numbers are not reproducible.
    """
    given = (features[DROPOUT_SEED][0], 0) if DROPOUT_SEED in features else _current()
    with replayed(given):
        yield


@contextlib.contextmanager
def replayed(seeds):
    """Repeats the random numbers that followed `next_seeds` inside the `with`.

    Args:
      seeds: from `next_seeds`.
    """
    before = _current()
    _THREAD.seeds = seeds
    try:
        yield
    finally:
        _THREAD.seeds = before


def next_seeds():
    """Returns the seeds of the next `dropout`, for `replayed`; call it inside `seeded`."""
    if _current() is None:
        _THREAD.seeds = _random_seed(), 0
    return _current()


def dropout(x, rate, training, noise_shape=None):
    """Sets elements to 0 with probability `rate`, scales the others by 1 / (1 - rate).

    Srivastava et al. 2014.

    Args:
      x: float32 or bfloat16 `[batch, ...]`.
      rate: float in [0, 1), rounded to a multiple of 2 ** -16.
      training: False returns `x`.
      noise_shape: shape of the mask, which is broadcast to `x`; default: the shape of `x`.

    Returns:
      A tensor of the shape and dtype of `x`.
    """
    if not training or not rate:
        return x
    with tf.name_scope("dropout"):
        shape = shape_of(x) if noise_shape is None else noise_shape
        if device.current().fuses:
            keep = fused_keep(shape, rate)
            return tf.custom_gradient(lambda x: (keep(x), keep))(x)
        mask, scale = keep_mask(shape, rate)
        return x * (tf.cast(mask, x.dtype) * scale)


def drop_path(x, rate, training):
    """Stochastic depth (Huang et al. 2016, arXiv:1603.09382): drops `x` of random images.

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels]`, the output of a residual branch.
      rate: see `dropout`.
      training: see `dropout`.

    Returns:
      A tensor of the shape and dtype of `x`.
    """
    return dropout(x, rate, training, noise_shape=[tf.shape(x)[0], 1, 1, 1])


def keep_mask(shape, rate):
    """Returns a bool mask, False with probability `rate`, different in each call, and the scale.

    Random numbers are the cost of dropout, so each 32-bit word is used twice: its upper half for
    the first half of the batch, its lower half for the second one.

    Args:
      shape: `[batch, ...]`, int or int32 scalar tensors.
      rate: float in (0, 1), rounded to a multiple of 2 ** -16.

    Returns:
      The mask, and the float 1 / (1 - rate).
    """
    threshold = _threshold(rate)
    halves = _halves(_random_words(shape), threshold)
    mask = _packed(halves) if device.is_tpu() else tf.concat(halves, 0)
    return mask[: shape[0]], _scale(threshold)


def fused_keep(shape, rate):
    """Returns a function that applies a new mask and its scale, as one kernel; without a gradient.

    Args:
      shape: see `keep_mask`, whose mask this is.
      rate: see `keep_mask`.

    Returns:
      Function of a float32 or bfloat16 tensor, to whose shape the mask is broadcast.
    """
    keep, words = fusion.compiled(_keep, threshold=_threshold(rate)), _random_words(shape)
    return lambda x: keep(x, words, shape[0])


def _keep(x, words, batch_size, threshold):
    mask = tf.concat(_halves(words, threshold), 0)[:batch_size]
    return tf.where(mask, x * tf.cast(_scale(threshold), x.dtype), tf.zeros([], x.dtype))


def _threshold(rate):
    return min(round(rate * 2**_BITS), 2**_BITS - 1)


def _scale(threshold):
    return 1 / (1 - threshold / 2**_BITS)


def _halves(words, threshold):
    """Returns the masks of the two halves of the batch."""
    limit = tf.constant(threshold << _BITS, tf.uint32)
    lower = tf.bitwise.left_shift(words, tf.constant(_BITS, tf.uint32))
    return [words >= limit, lower >= limit]


def _packed(halves):
    """Returns the concatenation of two masks, kept in memory as bits until the backward pass.

    A TPU keeps a bool in a byte. XLA fuses packing and testing of the bits with what computes and
    what uses the mask. The bits are tested in the dtype of the words: a cast would be fused into
    what packs them, and the wider words be kept.

    Args:
      halves: two bool `[batch, ...]` of the same static shape.

    Returns:
      bool `[2 * batch, ...]`.
    """
    rows, *rest = halves[0].shape.as_list()
    in_word = max(size for size in range(1, _BITS + 1) if rows % size == 0)
    if in_word == 1:  # no gain over bytes
        return tf.concat(halves, 0)
    ones = [1] * len(rest)
    split = [rows // in_word, in_word, *rest]
    # Bit 2 * i + half of a word is row i of a half.
    places = tf.reshape(2 * tf.range(in_word), [1, in_word, *ones])
    first, second = (tf.cast(tf.reshape(half, split), tf.int32) for half in halves)
    pairs = tf.bitwise.bitwise_or(first, tf.bitwise.left_shift(second, 1))
    words = tf.reduce_sum(tf.bitwise.left_shift(pairs, places), axis=1, keepdims=True)
    kept = next(dtype for dtype in (tf.uint8, tf.uint16, tf.int32) if 8 * dtype.size >= 2 * in_word)
    words = tf.cast(words, kept)
    places += tf.reshape(tf.range(2), [2, 1, 1, *ones])
    bit = tf.cast(tf.bitwise.left_shift(1, places), kept)
    bits = tf.not_equal(tf.bitwise.bitwise_and(words, bit), tf.zeros([], kept))
    return tf.reshape(bits, [2 * rows, *rest])


def random_normal(shape):
    """Returns normal random numbers that a resumed run repeats, such as the noise of a generator.

    They differ between calls, replicas and micro-batches, like the masks of `dropout`.

    Args:
      shape: of the result, float32.
    """
    return tf.random.stateless_normal(shape, _next_seed())


def _random_words(shape):
    """Returns random uint32 for half the batch of a mask, different in each call."""
    batch_size, *rest = shape
    shape = [(batch_size + 1) // 2, *rest]
    return tf.random.stateless_uniform(shape, _next_seed(), None, None, tf.uint32)


def _next_seed():
    """Returns a seed, int32 `[2]`, another one in each call."""
    if _current() is None:
        return _random_seed()
    seed, calls = _current()
    _THREAD.seeds = seed, calls + 1
    return tf.add(seed, [0, calls])


def _current():
    """Returns (seed, number of calls), or None without a seed."""
    return getattr(_THREAD, "seeds", None)


def _random_seed():
    return tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)


def shape_of(x):
    """Returns the sizes of `x`: int if static, else int32 scalar tensors."""
    sizes = zip(x.shape.as_list(), tf.unstack(tf.shape(x)))
    return [dynamic if static is None else static for static, dynamic in sizes]
