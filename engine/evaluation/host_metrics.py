"""Computes the host metrics of a model, such as BLEU, from the predictions of a whole split."""

from __future__ import annotations

from typing import Any

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
      DataError: the number of predictions differs from that of the examples.
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
    for (features, labels), batch in zip(
        settings.pipeline.host_examples(split, batch_size), predictions
    ):
        for metric in host_metrics:
            metric.update(features, labels, batch)
        count += len(next(iter(batch.values())))
    if count != size:
        raise DataError(f"{count} predictions, but split '{split}' has {size} examples")
    return {name: value for metric in host_metrics for name, value in metric.result().items()}
