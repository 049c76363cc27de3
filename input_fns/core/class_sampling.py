"""Oversampling by class: the order of an epoch in which rare classes have more examples."""

from __future__ import annotations

import tensorflow as tf


def order(labels, num_examples: int, exponent: float, seed):
    """Returns the numbers of the examples of one epoch, int32 `[num_examples]`.

    A class with n examples in the split has a share of the epoch in proportion to n**exponent; its
    number of examples is rounded up or down at random. The examples of a class are equally
    frequent, up to one: all if there are enough, a random part of them in each epoch if not.

    Args:
      labels: int `[num_examples]`, the class of each example.
      num_examples: number of examples.
      exponent: 0 for equal shares of the classes, 1 for those of the split.
      seed: int64 `[2]`, seed of the epoch.
    """
    shuffle_seed, sample_seed, round_seed = (
        tf.random.experimental.stateless_fold_in(seed, stream) for stream in range(3)
    )
    labels = tf.cast(labels, tf.int32)
    shuffled = tf.random.experimental.stateless_shuffle(tf.range(num_examples), sample_seed)
    by_class = tf.gather(shuffled, tf.argsort(tf.gather(labels, shuffled), stable=True))
    counts = tf.math.bincount(labels)
    weights = tf.where(counts > 0, tf.cast(counts, tf.float64) ** exponent, 0)
    ends = tf.cumsum(weights)
    # Systematic sampling: one random number rounds the ends of all classes in the epoch.
    ends = ends / ends[-1] * num_examples + tf.random.stateless_uniform(
        [], round_seed, 0, 1, tf.float64
    )
    ends = tf.minimum(tf.cast(tf.floor(ends), tf.int32), num_examples)
    places = tf.range(num_examples)
    classes = tf.searchsorted(ends, places, side="right")
    begins = tf.concat([[0], ends[:-1]], axis=0)
    within = (places - tf.gather(begins, classes)) % tf.gather(counts, classes)
    firsts = tf.gather(tf.cumsum(counts, exclusive=True), classes)
    sampled = tf.gather(by_class, firsts + within)
    return tf.random.experimental.stateless_shuffle(sampled, shuffle_seed)
