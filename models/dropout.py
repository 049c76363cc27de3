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

FEATURE = "dropout_seed"
# A strategy builds each of its replicas in a thread of its own, all in one graph.
_OF_THREAD = threading.local()


@contextlib.contextmanager
def seeded(features):
    """In the `with`, `dropout` takes the seeds of a batch, int32 `[batch, 2]`, if it has any."""
    before = getattr(_OF_THREAD, "seeds", None)
    if FEATURE in features:
        _OF_THREAD.seeds = features[FEATURE][0], itertools.count()
    try:
        yield
    finally:
        _OF_THREAD.seeds = before


def dropout(x, rate, training, noise_shape=None):
    """Sets a share of `x` to zero in training, and scales the rest up (Srivastava et al. 2014).

    Args:
      x: float32 or bfloat16.
      rate: the share, in [0, 1).
      training: whether it does.
      noise_shape: what is kept or not as one has size 1 in it; by default it is that of `x`.

    Returns:
      A tensor like `x`.
    """
    if not training or not rate:
        return x
    with tf.name_scope("dropout"):
        kept = _uniform(tf.shape(x) if noise_shape is None else noise_shape) >= rate
        return tf.where(kept, x * (1 / (1 - rate)), tf.zeros([], x.dtype))


def _uniform(shape):
    """Returns float32 in [0, 1), others in each call."""
    seeds = getattr(_OF_THREAD, "seeds", None)
    if seeds is None:
        return tf.random.uniform(shape)
    seed, calls = seeds
    return tf.random.stateless_uniform(shape, tf.add(seed, [0, next(calls)]))
