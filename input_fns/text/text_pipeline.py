"""Parallel text: rows of token ids."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from common.constants import PAD
from input_fns import DataError
from input_fns.core import caching, serving
from input_fns.core.records import no_autograph
from input_fns.dataset_info import DatasetInfo, Feature
from input_fns.record_pipeline import RecordPipeline
from input_fns.text import translations

if TYPE_CHECKING:
    from input_fns.text.vocabulary import Vocabulary

# A graph holds the rows as a constant, and is limited to twice as many bytes.
_MAX_ROWS_BYTES = 2**30


@dataclasses.dataclass(frozen=True)
class TextPipeline(RecordPipeline):
    """Feeds rows of token ids: features "source" and "target", and the target as labels.

    A row, int32 `[max_length]`, holds sentences that each end in `EOS`, padded with
    `PAD`: several sentences in "train", one in other splits. Prediction gets "source".

    Attributes:
      serves_text: whether a SavedModel has a text signature, with ops of TensorFlow Text.
    """

    data: DatasetInfo
    cache: str = caching.AUTO
    serves_text: bool = False
    file_examples = "input_fns.text.sources.sentence_file:read"
    outside = "a token id in the shards is outside the vocabulary of dataset.json"

    @property
    def features(self) -> dict[str, Feature]:
        """Features of an example in prediction, as the model gets them."""
        return {"source": Feature("raw", "int32", (self.data.kind.max_length,))}

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The subword vocabulary; `vocabulary.decode` turns token ids into text."""
        from input_fns.text import vocabulary  # SentencePiece is an optional dependency

        return vocabulary.load(self._vocabulary_path)

    @property
    def _vocabulary_path(self):
        return os.path.join(self.data.data_dir, self.data.kind.vocabulary)

    @property
    def assets(self) -> tuple[str, ...]:
        """Paths of files that a SavedModel must hold."""
        return (self._vocabulary_path,)

    @no_autograph
    def batch_transform(self, features, labels, random):
        """Returns int32 rows, with the target as labels."""
        rows = {name: tf.cast(row, tf.int32) for name, row in features.items()}
        return rows, rows.get("target", ())

    def host_input_fn(self, split: str, max_examples: int = 0):
        """Returns an input_fn of the sources, longest first, in the order of `host_examples`."""
        rows = self._longest_first
        return lambda params: self.rows_input_fn(rows(split, max_examples)["source"])(params)

    def host_examples(self, split: str, batch_size: int, max_examples: int = 0):
        """Yields NumPy `(features, labels)` batches in the order of `host_input_fn`."""
        rows = self._longest_first(split, max_examples)
        for start in range(0, len(rows["source"]), batch_size):
            batch = {name: array[start : start + batch_size] for name, array in rows.items()}
            yield batch, batch["target"]

    @functools.cached_property
    def _sorted_rows(self):
        return {}

    def _longest_first(self, split, max_examples):
        # An evaluation needs the rows twice, for the model and for the host metrics.
        key = split, max_examples
        if key not in self._sorted_rows:
            rows = self.stored_rows(split, max_examples)
            order = translations.longest_first(rows["source"])
            self._sorted_rows[key] = {name: array[order] for name, array in rows.items()}
        return self._sorted_rows[key]

    def split_examples(self, split: str) -> translations.Sentences:
        """Returns the sentences of a split to predict."""
        rows = self.stored_rows(split)["source"]
        return translations.Sentences(self, rows, np.arange(len(rows)), len(rows))

    def prediction_writer(self, examples: translations.Sentences):
        """Returns the writer of translations."""
        return translations.TranslationWriter(self.vocabulary.decode, examples)

    def rows_input_fn(self, rows: np.ndarray):
        """Returns an input_fn for prediction of int32 `[sentences, max_length]`, in order."""
        if rows.nbytes > _MAX_ROWS_BYTES:
            raise DataError(
                f"{len(rows)} sentences are too many for one run; split the file into "
                f"{-(-rows.nbytes // _MAX_ROWS_BYTES)} files"
            )

        def input_fn(params):
            dataset = tf.data.Dataset.from_tensor_slices({"source": rows})
            return dataset.batch(params["batch_size"])

        return input_fn

    def rows(self, sentences: Iterable[Sequence[int]]) -> np.ndarray:
        """Returns token ids, at most `max_length` per sentence, as int32 `[n, max_length]`."""
        rows = []
        for ids in sentences:
            rows.append(np.full(self.data.kind.max_length, PAD, np.int32))
            rows[-1][: len(ids)] = ids
        return np.stack(rows)

    def stored_rows(self, split: str, count: int = 0) -> dict[str, np.ndarray]:
        """Returns the first `count` rows of a split, 0: all, `{"source", "target"}`, int32."""
        count = count or self.data.split(split).num_examples
        return serving.first_of(lambda: self.in_order(split), count)[0]

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the serving input receivers by signature, with one for text if `serves_text`."""
        receivers = RecordPipeline.receivers(self, top_k)
        if self.serves_text:
            receivers[serving.TEXT] = serving.Receiver(
                serving.string_inputs("text"),
                self._features_from_text,
                self._text_outputs,
                self._first_texts,
            )
        return receivers

    def _features_from_text(self, inputs):
        from input_fns.text import text_ops  # TensorFlow Text is an optional dependency

        max_length = self.data.kind.max_length
        return {"source": text_ops.to_rows(inputs["text"], self.vocabulary, max_length)}

    def _text_outputs(self, predictions, features):
        del features
        from input_fns.text import text_ops

        text = text_ops.to_text(predictions["target"], self.vocabulary)
        return {"text": text, "score": predictions["score"]}

    def _first_texts(self, split, count):
        texts = self.vocabulary.decode(self.stored_rows(split, count)["source"])
        return {"text": np.array([text.encode() for text in texts], object)}
