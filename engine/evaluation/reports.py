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

_COLLECTION = "first_examples"


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Implements `models.model.Evaluation`, which documents the other attributes.

    Attributes:
      folder: folder of the report files and TensorBoard events.
    """

    folder: str
    step: int
    metrics: Mapping[str, Any]
    features: dict[str, Any]
    labels: Any
    predictions: dict[str, Any]

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


def keep_first_examples(settings, features, labels, predict) -> None:
    """Makes the first examples of a batch available to `FirstExamplesHook`.

    Args:
      settings: `RunSettings`; the reports of its model say how many examples they need.
      features: tensors `[batch, ...]`.
      labels: like `features`.
      predict: function that builds the predictions.
    """
    reports = settings.model.reports(settings.params, settings.pipeline)
    count = max((report.num_examples for report in reports), default=0)
    if not count or settings.use_tpu:
        return
    examples = {"features": features, "labels": labels, "predictions": predict()}
    first = tf.nest.map_structure(lambda tensor: tensor[:count], examples)
    tf.compat.v1.add_to_collection(_COLLECTION, (first, count))


class FirstExamplesHook(tf.estimator.SessionRunHook):
    """Fetches the first examples of an evaluation.

    Attributes:
      examples: `{"features", "labels", "predictions"}` of NumPy arrays without padding; {} if the
        graph keeps none.
    """

    def begin(self):
        """Looks up the tensors; called at the start of each evaluation."""
        kept = tf.compat.v1.get_collection(_COLLECTION)
        self._fetches, self._count = kept[0] if kept else (None, 0)
        self.examples = {}

    def before_run(self, run_context):
        """Fetches the tensors while examples are missing."""
        del run_context
        return tf.estimator.SessionRunArgs(self._fetches) if self._count else None

    def after_run(self, run_context, run_values):
        """Adds the examples, without padding."""
        del run_context
        if not run_values.results:
            return
        is_example = run_values.results["features"][EXAMPLE_WEIGHT] > 0
        new = tf.nest.map_structure(
            lambda array: array[is_example][: self._count], run_values.results
        )
        self._count -= min(self._count, int(is_example.sum()))
        if self.examples:
            new = tf.nest.map_structure(lambda *parts: np.concatenate(parts), self.examples, new)
        self.examples = new
