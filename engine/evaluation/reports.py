"""Writes the reports of a model: images and tables of an evaluation."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from common import files
from common.constants import EXAMPLE_WEIGHT
from engine.hooks import summaries
from models.model import RankingReport, RequestingReport


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Implements `models.model.Evaluation`, which documents the other attributes.

    Attributes:
      folder: folder of the report files and TensorBoard events.
    """

    folder: str
    step: int
    metrics: Mapping[str, Any]
    features: dict[str, Any] = dataclasses.field(default_factory=dict)
    labels: Any = None
    predictions: dict[str, Any] = dataclasses.field(default_factory=dict)
    worst: dict[str, Any] = dataclasses.field(default_factory=dict)
    requested: dict[str, Any] = dataclasses.field(default_factory=dict)

    def write_file(self, name: str, content: str | bytes) -> None:
        """Writes a file atomically."""
        mode = "w" if isinstance(content, str) else "wb"
        with files.atomic_write(os.path.join(self.folder, name), mode) as file:
            file.write(content)

    def write_image(self, tag: str, png: bytes) -> None:
        """Writes an RGB PNG to TensorBoard."""
        summaries.write_image(self.folder, self.step, tag, png)

    def write_text(self, tag: str, markdown: str) -> None:
        """Writes Markdown to TensorBoard."""
        summaries.write_text(self.folder, self.step, tag, markdown)


def examples_hook(settings, features, labels, predict) -> ExamplesHook | None:
    """Returns the hook that keeps the examples that reports show; None if they show none.

    Args:
      settings: `RunSettings`; the reports of its model say how many examples they need.
      features: tensors `[batch, ...]`.
      labels: like `features`.
      predict: function that builds the predictions.
    """
    reports = settings.model.reports(settings.params, settings.pipeline)
    num_first = max((report.num_examples for report in reports), default=0)
    ranking = [report for report in reports if isinstance(report, RankingReport)]
    requesting = [report for report in reports if isinstance(report, RequestingReport)]
    if settings.use_tpu or not (num_first or ranking or requesting):
        return None
    examples = {"features": features, "labels": labels, "predictions": predict()}
    requests = [
        Requests(report.requests, features, examples["predictions"]) for report in requesting[:1]
    ]
    if ranking:
        with tf.name_scope("ranking"):
            examples["scores"] = ranking[0].score(features, labels, examples["predictions"])
    else:
        examples = tf.nest.map_structure(lambda tensor: tensor[:num_first], examples)
    num_worst = max((report.num_worst for report in ranking), default=0)
    return ExamplesHook(examples, num_first, num_worst, *requests)


@dataclasses.dataclass(frozen=True)
class Requests:
    """Features that a report wants predictions for.

    Attributes:
      arrays: `{name: array [n, ...]}`.
      features: tensors `[batch, ...]` of the evaluation, whose values are replaced.
      predictions: tensors `[batch, ...]`.
    """

    arrays: dict[str, np.ndarray]
    features: dict[str, tf.Tensor]
    predictions: dict[str, tf.Tensor]

    def run(self, session) -> dict[str, np.ndarray]:
        """Returns the predictions, `{name: array [n, ...]}`."""
        count = len(next(iter(self.arrays.values())))
        # A batch has a static size, so the last one is filled with the first requests.
        size = self.features[next(iter(self.arrays))].shape.as_list()[0] or count
        batches = []
        for begin in range(0, count, size):
            indices = np.arange(begin, begin + size) % count
            feeds = {self.features[name]: a[indices] for name, a in self.arrays.items()}
            batches.append(session.run(self.predictions, feeds))
        return {
            name: np.concatenate([batch[name] for batch in batches])[:count]
            for name in self.predictions
        }


@dataclasses.dataclass(eq=False)
class ExamplesHook(tf.estimator.SessionRunHook):
    """Fetches the first and the worst examples of an evaluation.

    Attributes:
      first: `{"features", "labels", "predictions"}` of NumPy arrays without padding, the first
        examples.
      worst: the same of the examples with the lowest scores, in order, with `scores` and `indices`,
        the places in the split; {} if the graph has no scores.
      requested: predictions for `requests`, after the last example; {} without requests.
    """

    # Tensors `[batch, ...]` by name: "features" with the example weights, "labels", "predictions",
    # and "scores" if `num_worst`.
    examples: dict[str, Any]
    num_first: int  # number of first examples to keep
    num_worst: int  # number of worst examples to keep
    requests: Requests | None = None

    def begin(self):
        """Starts from the first example; called at the start of each evaluation."""
        self._seen, self.first, self.worst, self.requested = 0, {}, {}, {}

    def end(self, session):
        """Predicts the requests."""
        if self.requests:
            self.requested = self.requests.run(session)

    def before_run(self, run_context):
        """Fetches the tensors while examples are missing."""
        del run_context
        needed = self.num_worst or self._seen < self.num_first
        return tf.estimator.SessionRunArgs(self.examples) if needed else None

    def after_run(self, run_context, run_values):
        """Adds the examples of the batch, without padding."""
        del run_context
        if not run_values.results:
            return
        is_example = run_values.results["features"][EXAMPLE_WEIGHT] > 0
        new = tf.nest.map_structure(lambda array: array[is_example], run_values.results)
        count = int(is_example.sum())
        scores = new.pop("scores", None)
        missing = max(0, self.num_first - self._seen)
        if missing:
            self.first = _concatenate(self.first, _rows(new, slice(missing)))
        if self.num_worst:
            indices = np.arange(self._seen, self._seen + count)
            self.worst = _concatenate(self.worst, {**new, "scores": scores, "indices": indices})
            order = np.argsort(self.worst["scores"], kind="stable")[: self.num_worst]
            self.worst = _rows(self.worst, order)
        self._seen += count


def _rows(examples, chosen):
    """Returns copies of the chosen rows, so that the batch can be freed."""
    return tf.nest.map_structure(lambda array: array[chosen].copy(), examples)


def _concatenate(examples, more):
    return tf.nest.map_structure(_join, examples, more) if examples else more


def _join(first, second):
    """Concatenates two arrays; dynamic padding makes batches of different lengths."""
    shape = np.maximum(first.shape[1:], second.shape[1:])

    def padded(array):
        missing = shape - array.shape[1:]
        return np.pad(array, [(0, 0), *((0, size) for size in missing)]) if any(missing) else array

    return np.concatenate([padded(first), padded(second)])
