"""Dropout whose random numbers are a function of the batch, so that a resumed run repeats them.

The seeds of a batch travel with it, `features["dropout_seed"]`: they depend on the run's seed and
on the step, and differ between cores and between the parts of an accumulated batch. TensorFlow's
own dropout counts in a state that is in no checkpoint.
"""

from __future__ import annotations

import contextlib
import itertools
import threading

import tensorflow as tf

from common.constants import DROPOUT_SEED

# A strategy builds each of its replicas in a thread of its own, all in one graph.
_OF_THREAD = threading.local()
_BITS = 16  # of a random number


@contextlib.contextmanager
def seeded(features):
    """In the `with`, `dropout` takes the seeds of a batch, int32 `[batch, 2]`, if it has any."""
    before = getattr(_OF_THREAD, "seeds", None)
    if DROPOUT_SEED in features:
        _OF_THREAD.seeds = features[DROPOUT_SEED][0], itertools.count()
    try:
        yield
    finally:
        _OF_THREAD.seeds = before


def dropout(x, rate, training, noise_shape=None):
    """Sets a share of `x` to zero in training, and scales the rest up (Srivastava et al. 2014).

    Args:
      x: float32 or bfloat16 `[batch, ...]`.
      rate: the share, in [0, 1), rounded to a multiple of 2 ** -16.
      training: whether it does.
      noise_shape: what is kept or not as one has size 1 in it; by default it is that of `x`.

    Returns:
      A tensor like `x`.
    """
    if not training or not rate:
        return x
    with tf.name_scope("dropout"):
        dropped = min(round(rate * 2**_BITS), 2**_BITS - 1)
        kept = _kept(_shape(x) if noise_shape is None else noise_shape, dropped)
        return x * (tf.cast(kept, x.dtype) * (1 / (1 - dropped / 2**_BITS)))


def _kept(shape, dropped):
    """Returns bool: false with a probability of `dropped` in `2 ** _BITS`, others in each call.

    Random numbers are what dropout costs, so each word of them decides twice: with its upper half,
    and, for the other half of the batch, with its lower one.
    """
    batch_size, *rest = shape
    words = _random_words([(batch_size + 1) // 2, *rest])
    limit = tf.constant(dropped << _BITS, tf.uint32)
    lower = tf.bitwise.left_shift(words, tf.constant(_BITS, tf.uint32))
    return tf.concat([words >= limit, lower >= limit], 0)[:batch_size]


def _random_words(shape):
    """Returns uint32, others in each call."""
    seeds = getattr(_OF_THREAD, "seeds", None)
    if seeds is None:
        seed = tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    else:
        seed, calls = seeds
        seed = tf.add(seed, [0, next(calls)])
    return tf.random.stateless_uniform(shape, seed, None, None, tf.uint32)


def _shape(x):
    """Returns the sizes of `x`, each a number if it is known."""
    sizes = zip(x.shape.as_list(), tf.unstack(tf.shape(x)))
    return [dynamic if static is None else static for static, dynamic in sizes]
