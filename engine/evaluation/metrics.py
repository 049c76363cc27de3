"""Streaming metrics of an exact evaluation, with example weights for the padded final batch."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from common.errors import UsageError
from common.messages import did_you_mean
from models import classification


def mean_loss(terms, weights):
    """Returns the loss of a padded batch, a float32 scalar; 0 without examples.

    Args:
      terms: `{name: models.model.Loss}`.
      weights: float32 `[batch]`, 1 for an example, 0 for padding.
    """

    def mean(term):
        counted = _counted(term, weights)
        total = tf.reduce_sum(term.values * counted)
        return tf.math.divide_no_nan(total, tf.reduce_sum(counted)) * term.scale

    return tf.add_n([mean(term) for term in terms.values()])


def streaming(model, labels, outputs, terms, weights, params):
    """Returns the streaming metrics of the model and of its loss, `{name: (value, update_op)}`.

    `average_loss` is the loss of the whole split. If the loss has several terms, `<name>_loss` is
    the mean of each, before scaling. `examples` counts the examples without padding.

    Args:
      model: a `models.model.Model`.
      labels: `[batch, ...]`.
      outputs: result of `model.eval_outputs`.
      terms: `{name: models.model.Loss}`.
      weights: float32 `[batch]`, 1 for an example, 0 for padding.
      params: all hyperparameters.
    """
    means = {
        name: tf.compat.v1.metrics.mean(term.values, _counted(term, weights))
        for name, term in terms.items()
    }
    scales = [term.scale for term in terms.values()]
    value, update = (
        tf.add_n([mean * scale for mean, scale in zip(side, scales)])
        for side in zip(*means.values())
    )
    each = {f"{name}_loss": mean for name, mean in means.items()} if len(means) > 1 else {}
    return {
        **model.metrics(labels, outputs, weights, params),
        **each,
        "average_loss": (value, update),
        "examples": _count(weights),
    }


def check_best_metric(name: str, model, features, labels, step, params, host_metrics: Iterable):
    """Checks that an evaluation yields the scalar that `--best_metric` names; "" is accepted.

    Args:
      name: value of the flag without its direction.
      model: a `models.model.Model`.
      features: features of a training batch.
      labels: labels of a training batch.
      step: the `TrainStep`.
      params: all hyperparameters.
      host_metrics: host metrics of the model.

    Raises:
      UsageError: the metric is unknown.
    """
    if not name:
        return
    batch_size = tf.nest.flatten((features, labels, step.eval_outputs))[0].shape[0]
    with tf.Graph().as_default():  # the training graph of a TPU cannot hold metrics
        like = tf.nest.map_structure(
            lambda tensor: tf.compat.v1.placeholder(tensor.dtype, tensor.shape),
            (labels, step.eval_outputs),
        )
        weights = tf.ones([batch_size])
        metrics = model.metrics(*like, weights, params)
        scalars = {key for key, (value, _) in metrics.items() if value.shape.rank == 0}
    scalars.add("average_loss")
    if len(step.loss_names) > 1:
        scalars.update(f"{key}_loss" for key in step.loss_names)
    scalars.update(key for metric in host_metrics for key in metric.names)
    if name not in scalars:
        raise UsageError(f"--best_metric={name} is unknown.{did_you_mean(name, scalars)}")


def _counted(term, weights):
    """Returns the weights of the values of a `models.model.Loss`: 0 for padded examples."""
    return weights if term.weights is None else weights * term.weights


def _count(weights):
    # int64: float32 cannot count beyond 2**24 examples.
    total = classification.metric_total("examples/total", [], tf.int64)
    counted = tf.math.count_nonzero(weights)
    return total.read_value(), total.assign_add(counted)
