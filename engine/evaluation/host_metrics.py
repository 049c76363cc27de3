"""Feeds the host metrics of a model, such as BLEU, with the predictions of a whole split.

An Estimator takes them from the evaluation, if that computes them. Else `predict` does.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from common import files
from common.constants import EXAMPLE_WEIGHT
from engine.checkpoints import find
from engine.hooks import progress
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


class UpdateHook(tf.estimator.SessionRunHook):
    """Updates host metrics with the predictions of an evaluation.

    Attributes:
      split: name of the split; set before each evaluation.
      updated: the host metrics.
    """

    split: str

    def __init__(self, settings, predictions, weights):
        """Initializes the hook.

        Args:
          settings: `RunSettings`.
          predictions: `{name: tensor [batch, ...]}`.
          weights: float32 `[batch]`, 1 for an example and 0 for padding.
        """
        self._settings = settings
        self._fetches = tf.estimator.SessionRunArgs((predictions, weights))

    def after_create_session(self, session, coord):
        """Starts from the first example, also when MonitoredSession recovers from an error."""
        del session, coord
        settings = self._settings
        self.updated = settings.model.host_metrics(settings.params, settings.pipeline)
        self._examples = settings.host_examples(self.split, settings.evaluation.batch_size)

    def before_run(self, run_context):
        """Fetches the predictions."""
        del run_context
        return self._fetches

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
      predict_fn: function from `hooks` and `checkpoint_path` to an iterator of the predictions of
        batches, of every example once, in the order of `host_examples`; more may follow these.
      checkpoint: path.

    Raises:
      DataError: predictions and examples do not match.
    """
    host_metrics = settings.model.host_metrics(settings.params, settings.pipeline)
    if not host_metrics:
        return ()
    batch_size = settings.prediction.batch_size
    size = settings.evaluation.num_examples(settings.dataset, split)
    predictions = predict_fn(
        hooks=[progress.EvalProgressHook("predict", size, batch_size)], checkpoint_path=checkpoint
    )
    count = 0
    for features, labels in settings.host_examples(split, batch_size):
        num_examples = len(tf.nest.flatten(features)[0])
        batch = _take(predictions, num_examples)
        for metric in host_metrics:
            metric.update(features, labels, batch)
        count += num_examples
    more = sum(1 for _ in predictions)  # also ends the session
    if count != size or (more and not settings.evaluation.is_partial(settings.dataset, split)):
        raise DataError(f"the predictions do not match the {size} examples of split '{split}'")
    return host_metrics


def has_files(model, params, pipeline) -> bool:
    """Whether the model writes its predictions of a split as files of host metrics."""
    return any(isinstance(metric, FileMetric) for metric in model.host_metrics(params, pipeline))


def write_files(host_metrics: Sequence[HostMetric], folder: str) -> list[str]:
    """Writes the files of the host metrics atomically; returns their names."""
    contents = {
        name: content
        for metric in host_metrics
        if isinstance(metric, FileMetric)
        for name, content in metric.files().items()
    }
    for name, content in contents.items():
        with files.atomic_write(os.path.join(folder, name)) as file:
            file.write(content)
    return list(contents)


def write_predictions(settings, predict_fn) -> None:
    """Writes the files of the host metrics for the evaluation split: `--mode=predict`.

    Args:
      settings: `RunSettings`.
      predict_fn: see `predict`.
    """
    split = settings.evaluation.split
    name = f"predictions_{split}_{settings.start_step}"
    name = find.add_label(name, settings.model_dir, settings.checkpoint)
    folder = settings.prediction.output or os.path.join(settings.model_dir, name)
    host_metrics = predict(settings, split, predict_fn, settings.checkpoint)
    written = ", ".join(write_files(host_metrics, folder))
    print(f"predictions of {split} by {settings.checkpoint}: {folder}: {written}")


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
