"""Throughput of an input_fn on this machine, to compare with what a TPU consumes."""

from __future__ import annotations

import time

import tensorflow as tf

from tpu.check import graph_builder
from tpu.connect.topology import Topology


def measure(estimator, input_fn, mode: str, tpu_topology: Topology, seconds: float = 1.0) -> float:
    """Returns examples/s of input_fn, called as for the first host of the slice.

    Args:
      estimator: a `TPUEstimator(use_tpu=True)`, made with any resolver or master.
      input_fn: returns a tf.data.Dataset or tensors; takes any arguments that TPUEstimator passes.
      mode: "train", "eval" or "infer" (`tf.estimator.ModeKeys`).
      tpu_topology: the slice.
      seconds: how long to read after the first batch.

    Raises:
      Any exception of input_fn.
    """
    with graph_builder.on_slice(estimator, tpu_topology), tf.Graph().as_default():
        with estimator._ctx.with_mode(mode) as context:
            batch_size = context.batch_size_for_input_fn
        batch = next_batch(estimator, input_fn, mode)
        step = tf.group(*tf.nest.flatten(batch), name="batch")
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


def next_batch(estimator, input_fn, mode):
    """Returns the tensors of a batch; calls input_fn as TPUEstimator does."""
    batch = graph_builder.call_input_fn(estimator, input_fn, mode)
    if not isinstance(batch, (tf.data.Dataset, tf.compat.v1.data.Dataset)):
        return batch
    iterator = tf.compat.v1.data.make_initializable_iterator(batch)
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return iterator.get_next()
