"""Throughput of an input_fn on this machine, to compare with what a TPU consumes."""

from __future__ import annotations

import time

import tensorflow as tf

from tpu.check.graph_builder import CheckedMode


def measure(checked: CheckedMode, seconds: float = 1.0) -> float:
    """Returns examples/s of input_fn, called as for the first host of the slice.

    Args:
      checked: the mode; input_fn returns a tf.data.Dataset or tensors, and takes any arguments that
        TPUEstimator passes.
      seconds: how long to read after the first batch.

    Raises:
      Any exception of input_fn.
    """
    with checked.context() as context:
        batch_size = context.batch_size_for_input_fn
    with checked.on_slice(), tf.Graph().as_default():
        step = tf.group(*tf.nest.flatten(checked.next_batch()), name="batch")
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS))
            session.run(step)
            started, num_batches = time.monotonic(), 0
            try:
                while time.monotonic() - started < seconds:
                    session.run(step)
                    num_batches += 1
            except tf.errors.OutOfRangeError:
                pass
            return num_batches * batch_size / (time.monotonic() - started)
