"""Streaming metrics of an exact evaluation, with example weights for the padded final batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import tensorflow as tf

from common.errors import UsageError
from common.messages import did_you_mean
from models import classification
from models.model import ModelError

# Scalars of every evaluation or training, and keys of an evaluation in result_<step>.json.
_RESERVED = (
    "loss", "average_loss", "learning_rate", "examples", "of_examples", "global_step", "split",
    "checkpoint", "data",
)  # fmt: skip


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

    Raises:
      ModelError: see `check`.
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
    each = dict(zip(_of_terms(means), means.values()))
    of_model = model.metrics(labels, outputs, weights, params)
    _check_names(of_model, means)
    return {
        **of_model,
        **each,
        "average_loss": (value, update),
        "examples": _count(weights),
    }


def check(best_metric: str, model, features, labels, step, params, host_metrics: Iterable):
    """Checks the names of metrics, and that an evaluation yields the scalar of `--best_metric`.

    Args:
      best_metric: value of the flag without its direction; "" is accepted.
      model: a `models.model.Model`.
      features: features of a training batch.
      labels: labels of a training batch.
      step: the `TrainStep`.
      params: all hyperparameters.
      host_metrics: host metrics of the model.

    Raises:
      ModelError: `model.metrics` returns no dict, or a metric or a term of the loss has the name of
        a value that the evaluation adds.
      UsageError: the metric of the flag is unknown.
    """
    batch_size = tf.nest.flatten((features, labels, step.eval_outputs))[0].shape[0]
    with tf.Graph().as_default():  # the training graph of a TPU cannot hold metrics
        like = tf.nest.map_structure(
            lambda tensor: tf.compat.v1.placeholder(tensor.dtype, tensor.shape),
            (labels, step.eval_outputs),
            expand_composites=True,
        )
        weights = tf.ones([batch_size])
        metrics = model.metrics(*like, weights, params)
        _check_names(metrics, step.loss_names)
        scalars = {key for key, (value, _) in metrics.items() if value.shape.rank == 0}
    scalars.update(["average_loss", *_of_terms(step.loss_names)])
    scalars.update(key for metric in host_metrics for key in metric.names)
    if best_metric and best_metric not in scalars:
        raise UsageError(
            f"--best_metric={best_metric} is unknown.{did_you_mean(best_metric, scalars)}"
        )


def _of_terms(loss_names):
    """Returns the names of the means of the terms of a loss; none of a single term."""
    return [f"{name}_loss" for name in loss_names] if len(loss_names) > 1 else []


def _check_names(metrics, loss_names):
    """Raises `ModelError` if a name of `Model.metrics` or `Model.losses` is taken."""
    if not isinstance(metrics, Mapping):
        raise ModelError(
            f"metrics: returned {metrics!r:.60}, not a dict of (value, update_op) for each name"
        )
    of_terms = _of_terms(loss_names)
    if "average_loss" in of_terms:
        raise ModelError(
            "losses: the mean of the term 'average' would be average_loss, the name of the whole "
            "loss. Rename the term"
        )
    for name in metrics:
        if name in (*_RESERVED, *of_terms):
            raise ModelError(
                f"metrics: '{name}' is the name of a value that the engine adds. Rename it; "
                f"reserved are {', '.join((*_RESERVED, *of_terms))}"
            )


def _counted(term, weights):
    """Returns the weights of the values of a `models.model.Loss`: 0 for padded examples."""
    return weights if term.weights is None else weights * term.weights


def _count(weights):
    # int64: float32 cannot count beyond 2**24 examples.
    total = classification.metric_total("examples/total", [], tf.int64)
    counted = tf.math.count_nonzero(weights)
    return total.read_value(), total.assign_add(counted)
