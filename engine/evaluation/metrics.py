"""The metrics of an exact evaluation, and the loss that goes with weighted examples."""

from __future__ import annotations

import tensorflow as tf

from common.errors import UsageError
from common.messages import did_you_mean
from models.layers import device


def global_loss_weight(model, labels, params):
    """Returns what a core divides the sum of its weighted losses by, a float32 scalar.

    The mean over the cores of their weights: so the mean over the cores of the losses, and of the
    gradients, is that of the global batch, even where a core has more to learn from than another.

    Args:
      model: a `models.model.Model`.
      labels: of one core's batch.
      params: of the model_fn, with what TPUEstimator adds.
    """
    if model.loss_weights is None:
        return float(labels.shape.as_list()[0])
    weight = tf.reduce_sum(model.loss_weights(labels))
    here = device.from_params(params)
    return here.cross_replica_sum(weight) / here.num_replicas


def mean_loss(model, labels, losses, weights):
    """Returns the mean of float32 `[batch]` losses; without examples, 0. See `metrics`."""
    weights = _loss_weights(model, labels, weights)
    return tf.math.divide_no_nan(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))


def require_metric(name, model, labels, eval_outputs, more=()):
    """Checks that an evaluation gives the scalar that `--best_metric` names.

    Args:
      name: the metric's, or "" for none.
      model: a `models.model.Model`.
      labels: tensors like those of an evaluation.
      eval_outputs: the model's.
      more: names of scalars that do not come from the model.

    Raises:
      UsageError: it does not.
    """
    if not name:
        return
    with tf.Graph().as_default():  # the training graph of a TPU has no place for metrics
        like = tf.nest.map_structure(
            lambda tensor: tf.compat.v1.placeholder(tensor.dtype, tensor.shape),
            (labels, eval_outputs),
        )
        metrics = model.metrics(*like, None)
        scalars = {key for key, (value, _) in metrics.items() if value.shape.rank == 0}
    scalars.update(["average_loss", *more])
    if name not in scalars:
        raise UsageError(f"--best_metric={name} is unknown.{did_you_mean(name, scalars)}")


def metrics(model, labels, eval_outputs, losses, weights):
    """Returns the model's metrics, `average_loss` and `examples`, each as (value, update_op).

    Args:
      model: a `models.model.Model`.
      labels: `[batch, ...]`.
      eval_outputs: the model's.
      losses: float32 `[batch]`.
      weights: float32 `[batch]`, 1 for an example, 0 for padding.
    """
    loss_weights = _loss_weights(model, labels, weights)
    return {
        **model.metrics(labels, eval_outputs, weights),
        "average_loss": tf.compat.v1.metrics.mean(losses, loss_weights),
        "examples": _count(weights),
    }


def _loss_weights(model, labels, weights):
    return weights if model.loss_weights is None else weights * model.loss_weights(labels)


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
