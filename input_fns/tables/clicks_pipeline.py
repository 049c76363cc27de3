"""Click logs: numbers, categories and the class, click or no click.

The model gets, for training, evaluation and prediction:

    numbers     float32 [batch, numbers], log(1 + x); 0 for a missing value
    categories  int32 [batch, categories], rows of the embedding table of each category
    label       int32 [batch], 1 for a click
"""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import tensorflow as tf

from input_fns.core import caching, serving
from input_fns.dataset_info import DatasetInfo
from input_fns.record_pipeline import RecordPipeline

PROBABILITY = "click_probability"  # signature


@dataclasses.dataclass(frozen=True)
class ClicksPipeline(RecordPipeline):
    """Feeds click logs; see the module."""

    data: DatasetInfo
    cache: str = caching.AUTO
    outside = "a row in the shards is outside the tables of dataset.json"

    # Serving.

    @property
    def input_limits(self) -> dict[str, tuple]:
        """`{feature: (lowest, limit)}` of the values of a request; see `serving.checked`."""
        rows = self.data.kind.table_rows
        return {"numbers": serving.FINITE, "categories": (-1, rows)}  # -1: no category

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the serving input receivers by signature.

        Besides those of `RecordPipeline`, `click_probability` takes `raw_numbers`, float32
        `[batch, numbers]`, NaN if missing, and `values`, string `[batch, categories]`, "" if
        missing.
        """
        num_numbers = self.data.features["numbers"].shape[0]
        num_categories = len(self.data.kind.table_rows)
        receiver = serving.Receiver(
            {
                "raw_numbers": tf.TensorSpec([None, num_numbers], tf.float32),
                "values": tf.TensorSpec([None, num_categories], tf.string),
            },
            lambda inputs: {
                "numbers": _transform_numbers(inputs["raw_numbers"]),
                "categories": self.find_rows(inputs["values"]),
            },
            lambda predictions, features: {"probability": predictions["probabilities"]},
            self._first_values,
            self.input_limits,
        )
        return {**RecordPipeline.receivers(self, top_k), PROBABILITY: receiver}

    def find_rows(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the row of the table of each value, as prepare_data.py computes it.

        Args:
          values: string `[batch, categories]`.

        Returns:
          int32 `[batch, categories]`: 0 for "", a hashed row for a value outside the vocabulary.
        """
        clicks = self.data.kind
        initializer = tf.lookup.TextFileInitializer(
            self._vocabulary,
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        values = tf.strings.lower(values)  # hexadecimal digits
        known = np.array(clicks.vocabulary_rows, np.int64)
        hashed = np.array(clicks.table_rows, np.int64) - known
        first_lines = np.cumsum(known) - known
        names = [f"C{i + 1}\t" for i in range(len(known))]
        lines = tf.lookup.StaticHashTable(initializer, -1).lookup(tf.add(names, values))
        # The hash of the converter.
        others = known + tf.strings.to_hash_bucket_fast(values, 2**63 - 1) % hashed
        return tf.cast(tf.where(lines >= 0, lines - first_lines, others), tf.int32)

    @property
    def _vocabulary(self):
        return os.path.join(self.data.data_dir, self.data.kind.vocabulary)

    def _first_values(self, split, count):
        """Returns inputs of `click_probability` that give the first rows, but hashed values."""
        features = self._first_features(split, count)
        with tf.io.gfile.GFile(self._vocabulary, "rb") as file:
            lines = [line.split(b"\t")[-1] for line in file.read().split(b"\n")]
        known = np.array(self.data.kind.vocabulary_rows)
        places = features["categories"] + np.cumsum(known) - known
        values = np.array(lines, object)[np.minimum(places, len(lines) - 1)]
        is_hashed = features["categories"] >= known
        return {
            "raw_numbers": np.expm1(features["numbers"]),
            "values": np.where(is_hashed, b"unknown", values),
        }


def _transform_numbers(numbers):
    """Returns log(1 + x), and 0 for x < 0 and NaN."""
    is_positive = numbers > 0  # false for NaN
    return tf.math.log1p(tf.where(is_positive, numbers, tf.zeros_like(numbers)))
