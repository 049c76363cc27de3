"""Oversampling by class: the order of an epoch in which rare classes have more examples.

`order` is that of a split in memory. A split that is read from its files is read in its own order,
and each example is left out or repeated: `repeats`.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from input_fns.core import chunks


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
    labels = tf.ensure_shape(tf.cast(labels, tf.int32), [num_examples])
    counts = tf.math.bincount(labels)
    weights = tf.where(counts > 0, tf.cast(counts, tf.float64) ** exponent, 0)
    sampled = _sampled(labels, counts, weights, num_examples, seed)
    return tf.random.experimental.stateless_shuffle(
        sampled, tf.random.experimental.stateless_fold_in(seed, 0)
    )


def _sampled(labels, counts, weights, size, seed):
    """Returns the numbers of `size` examples, sorted by class, int32 `[size]`.

    Args:
      labels: int32 `[n]`, the class of each example.
      counts: int32 `[num_classes]`, examples of each class.
      weights: float64 `[num_classes]`, shares of the classes up to a factor; 0 of those without
        examples.
      size: number of examples to sample.
      seed: int64 `[2]`.
    """
    sample_seed, round_seed = (
        tf.random.experimental.stateless_fold_in(seed, stream) for stream in (1, 2)
    )
    shuffled = tf.random.experimental.stateless_shuffle(
        tf.range(labels.shape[0], dtype=tf.int32), sample_seed
    )
    by_class = tf.gather(shuffled, tf.argsort(tf.gather(labels, shuffled), stable=True))
    ends = tf.cumsum(weights)
    # Systematic sampling: one random number rounds the ends of all classes in the epoch.
    ends = ends / ends[-1] * size + tf.random.stateless_uniform([], round_seed, 0, 1, tf.float64)
    ends = tf.minimum(tf.cast(tf.floor(ends), tf.int32), size)
    places = tf.range(size, dtype=tf.int32)
    classes = tf.searchsorted(ends, places, side="right")
    begins = tf.concat([[0], ends[:-1]], axis=0)
    within = (places - tf.gather(begins, classes)) % tf.gather(counts, classes)
    firsts = tf.gather(tf.cumsum(counts, exclusive=True), classes)
    return tf.gather(by_class, firsts + within)


def rates(labels: np.ndarray, exponent: float) -> np.ndarray:
    """Returns how often an example of each class is in an epoch, the mean, `[num_classes]`.

    Args:
      labels: int `[size]`, the classes of a split.
      exponent: see `order`.
    """
    counts = np.bincount(labels)
    weights = np.where(counts > 0, counts.astype(np.float64) ** exponent, 0)
    return weights / weights.sum() * len(labels) / np.maximum(counts, 1)


def host_part(labels: np.ndarray, rates: np.ndarray, host: int, num_hosts: int):
    """Returns the first record that a host reads, the first after it, and the size of its epochs.

    Epochs of all hosts have one size, up to one example, so hosts with many rare examples read
    fewer records.

    Args:
      labels: int `[size]`, the classes of a split.
      rates: see `rates`.
      host: number of the host.
      num_hosts: number of hosts.
    """
    bounds = chunks.host_range(len(labels), host, num_hosts)
    rate = rates[labels]
    start, stop = np.searchsorted(np.cumsum(rate) - rate / 2, bounds).tolist()
    return start, stop, bounds[1] - bounds[0]


def repeats(labels, rates: np.ndarray, size: int, seed):
    """Returns how often each example of a part of a split is in an epoch, int32 `[n]`.

    As in `order`, the examples of a class are equally frequent, up to one.

    Args:
      labels: int `[n]`, the class of each example.
      rates: see `rates`.
      size: sum of the result.
      seed: int64 `[2]`, seed of the epoch.
    """
    labels = tf.cast(labels, tf.int32)
    counts = tf.math.bincount(labels, minlength=len(rates))
    weights = tf.cast(counts, tf.float64) * rates
    sampled = _sampled(labels, counts, weights, size, seed)
    return tf.math.bincount(sampled, minlength=labels.shape[0])
