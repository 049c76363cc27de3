"""Feeds the host metrics of a model, such as BLEU, with the predictions of a whole split."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from common import files
from engine.checkpoints import find
from engine.hooks import progress
from input_fns import DataError
from models.model import FileMetric, HostMetric


def predict(settings, estimator, host_input_fn, checkpoint: str) -> Sequence[HostMetric]:
    """Predicts every example of the evaluation split; returns the updated host metrics.

    Args:
      settings: `RunSettings`.
      estimator: an Estimator or TPUEstimator.
      host_input_fn: input_fn of every example once, in the order of `pipeline.host_examples`.
      checkpoint: path.

    Raises:
      DataError: predictions and examples do not match.
    """
    host_metrics = settings.model.host_metrics(settings.params, settings.pipeline)
    if not host_metrics:
        return ()
    split, batch_size = settings.evaluation.split, settings.prediction.batch_size
    size = settings.dataset.split(split).num_examples
    predictions = estimator.predict(
        host_input_fn,
        hooks=[progress.EvalProgressHook("predict", size, batch_size)],
        checkpoint_path=checkpoint,
        yield_single_examples=False,
    )
    count = 0
    for features, labels in settings.pipeline.host_examples(split, batch_size):
        num_examples = len(tf.nest.flatten(features)[0])
        batch = _take(predictions, num_examples)
        for metric in host_metrics:
            metric.update(features, labels, batch)
        count += num_examples
    if count != size or next(predictions, None) is not None:
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


def write_predictions(settings, estimator, host_input_fn) -> None:
    """Writes the files of the host metrics for the evaluation split: `--mode=predict`."""
    split = settings.evaluation.split
    name = f"predictions_{split}_{settings.start_step}"
    name = find.add_label(name, settings.model_dir, settings.checkpoint)
    folder = settings.prediction.output or os.path.join(settings.model_dir, name)
    host_metrics = predict(settings, estimator, host_input_fn, settings.checkpoint)
    written = ", ".join(write_files(host_metrics, folder))
    print(f"predictions of {split} by {settings.checkpoint}: {folder}: {written}")


def _take(batches, num_examples):
    """Returns the next predictions as one batch; a TPU yields the last batch in parts."""
    parts, left = [], num_examples
    while left > 0:
        part = next(batches, None)
        if part is None:
            raise DataError(f"{left} predictions of a batch of {num_examples} are missing")
        parts.append(part)
        left -= len(tf.nest.flatten(part)[0])
    return tf.nest.map_structure(lambda *arrays: np.concatenate(arrays), *parts)
