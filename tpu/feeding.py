"""How fast an input_fn delivers on this machine, to be set against what a TPU would take."""

from __future__ import annotations

import time

import tensorflow as tf


def examples_per_second(input_fn, params, batch_size: int, seconds: float = 1.0) -> float:
    """Reads batches for a while.

    Args:
      input_fn: `(params) -> tf.data.Dataset`.
      params: of the estimator.
      batch_size: of one core: `params["batch_size"]` on a TPU.
      seconds: how long to read, after the first batch.
    """
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        dataset = input_fn({**params, "batch_size": batch_size})
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        element = tf.group(*tf.nest.flatten(iterator.get_next()))
        session.run(iterator.initializer)
        session.run(element)
        started, batches = time.monotonic(), 0
        try:
            while time.monotonic() - started < seconds:
                session.run(element)
                batches += 1
        except tf.errors.OutOfRangeError:
            pass
        return batches * batch_size / (time.monotonic() - started)
