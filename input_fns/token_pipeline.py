"""WordPiece text for BERT: rows of token ids.

Features of all tasks, int32 `[batch, max_length]`, with the names of google-research/bert:

    input_ids    ids of the tokens: [CLS] text [SEP], or [CLS] text [SEP] second text [SEP]
    input_mask   1 for a token, 0 for padding
    segment_ids  0 for the first text, 1 for the second

By task, labels (and features):

    classification        the class, int32 [batch]
    regression            score, float32 [batch]
    token_classification  tag_ids, int32 [batch, max_length]; -1 where no word starts
    squad                 start_positions, end_positions, int32 [batch]
    pretraining           masked_lm_ids, masked_lm_weights, int32 [batch, predictions], and
                          next_sentence_labels, int32 [batch]; feature masked_lm_positions, int32
                          [batch, predictions]
"""

from __future__ import annotations

import dataclasses
import functools
import os

import numpy as np
import tensorflow as tf

from input_fns import caching, images, serving
from input_fns.dataset_info import DatasetInfo, Feature
from input_fns.record_pipeline import RecordPipeline
from input_fns.records import no_autograph

OUTSIDE_VOCABULARY = "a token id in the shards is outside the vocabulary of dataset.json"


@dataclasses.dataclass(frozen=True)
class TokenPipeline(RecordPipeline):
    """Feeds rows of WordPiece ids; integers are stored small, and int32 for the model.

    Attributes:
      data: the data set.
      cache: "auto", "memory", "none", or a local folder; see `caching`.
      serves_text: whether a SavedModel has a text signature, with ops of TensorFlow Text.
    """

    data: DatasetInfo
    cache: str = caching.AUTO
    serves_text: bool = False

    @property
    def features(self) -> dict[str, Feature]:
        """Features of an example in prediction, as the model gets them."""
        stored = RecordPipeline.features.fget(self)
        return {name: Feature("raw", "int32", feature.shape) for name, feature in stored.items()}

    @property
    def vocabulary_path(self) -> str:
        """Path of the vocab.txt."""
        return os.path.join(self.data.data_dir, self.data.wordpiece.vocabulary)

    @functools.cached_property
    def tokenizer(self):
        """The tokenizer with the vocabulary of the data set, a `wordpiece.WordPieceTokenizer`."""
        from input_fns import wordpiece  # Hugging Face tokenizers are an optional dependency

        return wordpiece.load(self.vocabulary_path, self.data.wordpiece.lower_case)

    @property
    def assets(self) -> tuple[str, ...]:
        """Paths of files that a SavedModel must hold."""
        return (self.vocabulary_path,)

    def decode(self, serialized):
        """Returns stored features and labels, after a check of their token ids."""
        features, labels = RecordPipeline.decode(self, serialized)
        for values in (features, labels):
            for name, vocab_size in self.data.vocab_sizes.items():
                if isinstance(values, dict) and name in values:
                    values[name] = images.checked(values[name], vocab_size, OUTSIDE_VOCABULARY)
        return features, labels

    @no_autograph
    def batch_transform(self, features, labels, random):
        """Returns features and labels with int32 instead of other integers."""
        del random
        return tf.nest.map_structure(_as_int32, (features, labels))

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the serving input receivers by signature, with one for text if `serves_text`.

        Its inputs are string `[batch]`, `text` and for pairs `text_pair`.
        """
        receivers = RecordPipeline.receivers(self, top_k)
        if self.serves_text:
            names = ("text", "text_pair")[: 1 + self.data.wordpiece.has_pairs]
            receivers[serving.TEXT] = serving.Receiver(
                {name: tf.TensorSpec([None], tf.string) for name in names},
                lambda inputs: self._features_from_text([inputs[name] for name in names]),
                receivers[serving.RAW].outputs,
                lambda split, count: dict(zip(names, self._first_texts(split, count))),
            )
        return receivers

    def _features_from_text(self, texts):
        from input_fns import wordpiece_ops  # TensorFlow Text is an optional dependency

        return wordpiece_ops.to_rows(texts, self.tokenizer, self.data.wordpiece.max_length)

    def _first_texts(self, split, count):
        """Returns the first and the second texts of the first examples, objects `[count]`."""
        features = self._first_features(split, count)
        special = (self.tokenizer.cls_id, self.tokenizer.sep_id)
        is_word = (features["input_mask"] > 0) & ~np.isin(features["input_ids"], special)
        for segment in (0, 1):
            kept = is_word & (features["segment_ids"] == segment)
            texts = [
                self.tokenizer.decode(ids[row]) for ids, row in zip(features["input_ids"], kept)
            ]
            yield np.array([text.encode() for text in texts], object)


def _as_int32(tensor):
    return tf.cast(tensor, tf.int32) if tensor.dtype.is_integer else tensor
