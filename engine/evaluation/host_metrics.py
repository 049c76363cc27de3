"""Computes the host metrics of a model, such as BLEU, from the predictions of a whole split."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from engine.hooks import progress
from input_fns import DataError


def compute(settings, estimator, host_input_fn, checkpoint: str) -> dict[str, Any]:
    """Predicts every example of the evaluation split; returns the host metrics.

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
        return {}
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
    return {name: value for metric in host_metrics for name, value in metric.result().items()}


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
