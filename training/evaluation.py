"""The metrics of an exact evaluation, and the loss that goes with weighted examples."""

from __future__ import annotations

import tensorflow as tf

from models.registry import did_you_mean
from training.program import UsageError


def mean_loss(losses, weights=None):
    """Returns the mean of float32 `[batch]` losses over the examples whose weight is 1.

    Without weights, over all. A batch of padding alone gives 0.
    """
    if weights is None:
        return tf.reduce_mean(losses)
    return tf.math.divide_no_nan(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))


def require_metric(name, model, labels, outputs):
    """Checks that an evaluation gives the scalar that `--best_metric` names.

    Args:
      name: the metric's, or "" for none.
      model: a `models.model.Model`.
      labels: tensors like those of an evaluation.
      outputs: of the model's inference.

    Raises:
      UsageError: it does not.
    """
    if not name:
        return
    with tf.Graph().as_default():  # the training graph of a TPU has no place for metrics
        like = tf.nest.map_structure(
            lambda tensor: tf.compat.v1.placeholder(tensor.dtype, tensor.shape), (labels, outputs)
        )
        metrics = model.metrics(*like, None)
        scalars = {key for key, (value, _) in metrics.items() if value.shape.rank == 0}
    scalars.add("average_loss")
    if name not in scalars:
        raise UsageError(f"--best_metric={name} is unknown.{did_you_mean(name, scalars)}")


def metrics(model, labels, outputs, losses, weights):
    """Returns the model's metrics, `average_loss` and `examples`, each as (value, update_op).

    Args:
      model: a `models.model.Model`.
      labels: int32 `[batch]`.
      outputs: what the model's inference returned.
      losses: float32 `[batch]`.
      weights: float32 `[batch]`, 1 for an example, 0 for padding.
    """
    return {
        **model.metrics(labels, outputs, weights),
        "average_loss": tf.compat.v1.metrics.mean(losses, weights),
        "examples": _count(weights),
    }


def _count(weights):
    # Whole numbers: float32 would stop counting at 2**24 examples.
    total = tf.compat.v1.get_local_variable(
        "examples/total",
        shape=[],
        dtype=tf.int64,
        initializer=tf.compat.v1.zeros_initializer(),
        collections=[
            tf.compat.v1.GraphKeys.LOCAL_VARIABLES,
            tf.compat.v1.GraphKeys.METRIC_VARIABLES,
        ],
    )
    counted = tf.math.count_nonzero(weights)
    return total.read_value(), total.assign_add(counted)
