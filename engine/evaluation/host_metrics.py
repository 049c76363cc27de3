"""Feeds the host metrics of a model, such as BLEU, with the predictions of a whole split.

An Estimator takes them from the evaluation, if that computes them. Else `predict` does.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from common import files
from common.constants import EXAMPLE_WEIGHT
from engine.evaluation import predictions
from input_fns import DataError
from models.model import FileMetric, HostMetric


def update_hook(settings, features, predictions) -> UpdateHook | None:
    """Returns the hook of an evaluation that feeds host metrics; None if they need a prediction.

    Inference has to get the features of a prediction: that of a translation has no target. And the
    predictions have to be as long as those of `predict`, whatever rows dynamic padding shortens.

    Args:
      settings: `RunSettings`.
      features: tensors `[batch, ...]`.
      predictions: function that builds the predictions.
    """
    pipeline, split = settings.pipeline, settings.evaluation.split
    needed = {name.partition("/")[0] for name in pipeline.features}
    if (
        not settings.use_tpu
        and settings.model.host_metrics(settings.params, pipeline)
        and pipeline.host_input_fn(split) is None
        and features.keys() - {EXAMPLE_WEIGHT} == needed
    ):
        predicted = predictions()
        if all(tensor.shape[1:].is_fully_defined() for tensor in tf.nest.flatten(predicted)):
            return UpdateHook(settings, predicted, features[EXAMPLE_WEIGHT])
    return None


@dataclasses.dataclass(eq=False)
class UpdateHook(tf.estimator.SessionRunHook):
    """Updates host metrics with the predictions of an evaluation.

    Attributes:
      split: name of the split; set before each evaluation.
      updated: the host metrics.
    """

    settings: Any  # `RunSettings`
    predictions: dict[str, tf.Tensor]  # [batch, ...] each
    weights: tf.Tensor  # float32 `[batch]`, 1 for an example and 0 for padding

    def after_create_session(self, session, coord):
        """Starts from the first example, also when MonitoredSession recovers from an error."""
        del session, coord
        settings = self.settings
        self.updated = settings.model.host_metrics(settings.params, settings.pipeline)
        self._examples = settings.host_examples(self.split, settings.evaluation.batch_size)

    def before_run(self, run_context):
        """Fetches the predictions."""
        del run_context
        return tf.estimator.SessionRunArgs((self.predictions, self.weights))

    def after_run(self, run_context, run_values):
        """Adds the examples of the batch, without padding."""
        del run_context
        predictions, weights = run_values.results
        is_example = weights > 0
        examples = next(self._examples, None)
        if examples is None or len(tf.nest.flatten(examples)[0]) != is_example.sum():
            raise DataError(f"the evaluation does not match the examples of split '{self.split}'")
        batch = tf.nest.map_structure(lambda array: array[is_example], predictions)
        for metric in self.updated:
            metric.update(*examples, batch)


def predict(settings, split: str, predict_fn, checkpoint: str) -> Sequence[HostMetric]:
    """Predicts the examples of a split that are evaluated; returns the updated host metrics.

    Args:
      settings: `RunSettings`.
      split: name of the split.
      predict_fn: see `predictions.batches`; of every example once, in the order of `host_examples`.
      checkpoint: path.
    """
    host_metrics = settings.model.host_metrics(settings.params, settings.pipeline)
    if not host_metrics:
        return ()
    batch_size = settings.prediction.batch_size
    size = settings.evaluation.num_examples(settings.dataset, split)
    is_partial = settings.evaluation.is_partial(settings.dataset, split)
    batches = predictions.batches(predict_fn, size, batch_size, checkpoint)
    examples = settings.host_examples(split, batch_size)
    _update(host_metrics, examples, batches, size, may_exceed=is_partial)
    return host_metrics


def _update(host_metrics, examples, batches, size, may_exceed=False):
    """Updates host metrics with `size` NumPy examples and the predictions of batches.

    Raises:
      DataError: they do not match.
    """
    count = 0
    for features, labels in examples:
        num_examples = len(tf.nest.flatten(features)[0])
        batch = _take(batches, num_examples)
        for metric in host_metrics:
            metric.update(features, labels, batch)
        count += num_examples
    more = sum(1 for _ in batches)  # also ends the session
    if count != size or (more and not may_exceed):
        raise DataError(f"the predictions do not match the {size} examples of the split")


class FilesWriter:
    """Writes the predictions of a split as the files of host metrics; a `PredictionWriter`."""

    endings = ()

    def __init__(self, model, params, pipeline, split: str, batch_size: int):
        """Takes a model with a `FileMetric`, its hyperparameters, and what is predicted."""
        self._host_metrics = functools.partial(model.host_metrics, params, pipeline)
        self._examples = functools.partial(pipeline.host_examples, split, batch_size)
        self._size = pipeline.data.split(split).num_examples

    def write(self, path: str, batches: Iterator[dict[str, np.ndarray]]) -> None:
        """Writes a folder; see `input_fns.core.predictions.PredictionWriter`."""
        host_metrics = self._host_metrics()
        _update(host_metrics, self._examples(), batches, self._size)
        write_files(host_metrics, path)


def has_files(model, params, pipeline) -> bool:
    """Whether the model writes its predictions of a split as files of host metrics."""
    return any(isinstance(metric, FileMetric) for metric in model.host_metrics(params, pipeline))


def write_files(host_metrics: Sequence[HostMetric], folder: str) -> None:
    """Writes the files of the host metrics atomically."""
    contents = {
        name: content
        for metric in host_metrics
        if isinstance(metric, FileMetric)
        for name, content in metric.files().items()
    }
    for name, content in contents.items():
        with files.atomic_write(os.path.join(folder, name)) as file:
            file.write(content)


def _take(batches, num_examples):
    """Returns the next predictions as one batch; a TPU yields the last batch in parts."""
    parts, left = [], num_examples
    while left > 0:
        part = next(batches, None)
        if part is None:
            raise DataError(f"{left} predictions of a batch of {num_examples} are missing")
        parts.append(tf.nest.map_structure(operator.itemgetter(slice(left)), part))
        left -= len(tf.nest.flatten(part)[0])
    return tf.nest.map_structure(lambda *arrays: np.concatenate(arrays), *parts)
