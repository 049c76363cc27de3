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
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from input_fns.core import caching, records, serving
from input_fns.core.predictions import RowWriter
from input_fns.core.records import no_autograph
from input_fns.dataset_info import DatasetInfo, Feature
from input_fns.record_pipeline import RecordPipeline

_LENGTH_MULTIPLE = 8  # of rows with dynamic padding
# Of scripts that vocabularies lack: Ugaritic, Gothic, Deseret, Egyptian hieroglyphs.
_RARE_CHARACTERS = ("\U00010380", "\U00010330", "\U00010400", "\U00013000")


@dataclasses.dataclass(frozen=True)
class TokenPipeline(RecordPipeline):
    """Feeds rows of WordPiece ids; integers are stored small, and int32 for the model.

    Attributes:
      serves_text: whether a SavedModel has a text signature, with ops of TensorFlow Text.
      dynamic_padding: whether batches for a CPU or GPU are as long as their longest row, rounded
        up to a multiple of 8, instead of max_length.
      group_by_length: whether training batches for a CPU or GPU hold rows of similar length; needs
        dynamic_padding, and a split that is cached in memory.
      keeps_host_features: whether the features have those for the host.
      host_features: names of stored features for host metrics and writers, not for the model.
    """

    data: DatasetInfo
    cache: str = caching.AUTO
    serves_text: bool = False
    dynamic_padding: bool = False
    group_by_length: bool = False
    keeps_host_features: bool = False
    host_features = ()
    outside = "a token id or a place in the shards does not match dataset.json"

    @property
    def features(self) -> dict[str, Feature]:
        """Features of an example in prediction, as the model gets them."""
        stored = RecordPipeline.features.fget(self)
        return {
            name: Feature("raw", "int32", feature.shape)
            for name, feature in stored.items()
            if name not in self.host_features
        }

    def decode(self, serialized):
        """Returns stored features and labels, without the features for the host."""
        features, labels = RecordPipeline.decode(self, serialized)
        if not self.keeps_host_features:
            features = {n: value for n, value in features.items() if n not in self.host_features}
        return features, labels

    def host_examples(self, split: str, batch_size: int) -> Iterator[tuple[Any, Any]]:
        """Yields NumPy `(features, labels)` batches with the features for the host."""
        pipeline = dataclasses.replace(self, keeps_host_features=True)
        return records.iterate(lambda: pipeline.in_order(split).rebatch(batch_size))

    @property
    def vocabulary_path(self) -> str:
        """Path of the vocab.txt, or of the SentencePiece model."""
        return os.path.join(self.data.data_dir, self.data.kind.vocabulary)

    @property
    def group_lengths(self):
        """Function from stored examples to their numbers of tokens, if batches group by length."""
        return _num_tokens if self.group_by_length else None

    @functools.cached_property
    def tokenizer(self):
        """The tokenizer with the vocabulary of the data set, a `wordpiece.WordPieceTokenizer`."""
        from input_fns.text import encoder_vocabulary

        kind = self.data.kind
        return encoder_vocabulary.load(self.vocabulary_path, kind.lower_case, kind.strip_accents)

    @property
    def assets(self) -> tuple[str, ...]:
        """Paths of files that a SavedModel must hold."""
        return (self.vocabulary_path,)

    @no_autograph
    def batch_transform(self, features, labels, random):
        """Returns features and labels with int32 instead of other integers."""
        del random
        return tf.nest.map_structure(_as_int32, (features, labels))

    def train_input_fn(
        self, split: str, seed: int, start_step: int = 0, oversample: float | None = None
    ):
        """Returns an input_fn for training; see `RecordPipeline`."""
        return self._dynamically_padded(
            RecordPipeline.train_input_fn(self, split, seed, start_step, oversample)
        )

    def eval_input_fn(self, split: str):
        """Returns an input_fn for exact evaluation; see `RecordPipeline`."""
        return self._dynamically_padded(RecordPipeline.eval_input_fn(self, split))

    def predict_input_fn(self, split: str):
        """Returns an input_fn for prediction; see `RecordPipeline`."""
        input_fn = RecordPipeline.predict_input_fn(self, split)
        # Predictions of each token must have one length.
        has_tokens = self.data.kind.task not in ("classification", "regression")
        return input_fn if has_tokens else self._dynamically_padded(input_fn)

    def _dynamically_padded(self, input_fn):
        def padded_input_fn(params):
            dataset = input_fn(params)
            is_tpu_estimator = "context" in params
            if is_tpu_estimator or not self.dynamic_padding:
                return dataset
            return records.with_options(dataset.map(self._without_padding).prefetch(2))

        return padded_input_fn

    @no_autograph
    def _without_padding(self, features, *labels):
        num_tokens = _num_tokens(features)
        length = -(-tf.maximum(tf.reduce_max(num_tokens), 1) // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE
        max_length = self.data.kind.max_length

        def cut(tensor):
            has_length = tensor.shape.rank == 2 and tensor.shape[1] == max_length
            return tensor[:, :length] if has_length else tensor

        kept = {name: cut(features[name]) for name in ("input_ids", "input_mask", "segment_ids")}
        features = {**features, **kept}
        if labels and self.data.kind.task == "token_classification":
            labels = ({"tag_ids": cut(labels[0]["tag_ids"])},)
        return (features, *labels) if labels else features

    @property
    def file_examples(self) -> str:
        """Reader of the texts of `--input`, for tasks that read plain texts."""
        is_plain = self.data.kind.task in ("classification", "regression")
        return "input_fns.text.sources.text_lines:read" if is_plain else ""

    def prediction_writer(self, examples):
        """Returns the writer of classes, scores, tags, or embeddings of tokens."""
        return TokenWriter(self, examples)

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the serving input receivers by signature, with those of text if `serves_text`.

        Their inputs are string `[batch]`, `text` and for pairs `text_pair`; of "embed_text" `text`.
        """
        receivers = {**RecordPipeline.receivers(self, top_k), **self._embedding_receivers()}
        if self.serves_text:
            names = ("text", "text_pair")[: 1 + self.data.kind.has_pairs]
            receivers[serving.TEXT] = serving.Receiver(
                serving.string_inputs(*names),
                lambda inputs: self._features_from_text([inputs[name] for name in names]),
                receivers[serving.RAW].outputs,
                lambda split, count: dict(zip(names, self._first_texts(split, count))),
            )
        return receivers

    def _embedding_receivers(self):
        """Returns the receivers of embeddings, of ids and, if `serves_text`, of text."""

        def outputs(predictions, features):
            del features
            return predictions

        names = ("input_ids", "input_mask", "segment_ids")
        inputs = serving.raw_inputs({name: self.features[name] for name in names})

        def first_rows(split, count):
            first = self._first_features(split, count)
            return {name: first[name] for name in names}

        found = {serving.EMBED: serving.Receiver(inputs, dict, outputs, first_rows)}
        if self.serves_text:
            found[serving.EMBED_TEXT] = serving.Receiver(
                serving.string_inputs("text"),
                lambda inputs: self._features_from_text([inputs["text"]], with_places=True),
                outputs,
                lambda split, count: {"text": next(TokenPipeline._first_texts(self, split, count))},
            )
        return {
            name: dataclasses.replace(receiver, predictions="embeddings")
            for name, receiver in found.items()
        }

    def _features_from_text(self, texts, with_places=False):
        from input_fns.text import wordpiece_ops  # TensorFlow Text is an optional dependency

        kind = self.data.kind
        to_rows = wordpiece_ops.to_rows_with_places if with_places else wordpiece_ops.to_rows
        return to_rows(texts, self.tokenizer, kind.max_length, kind.truncate)

    def _first_texts(self, split, count):
        """Returns the first and the second texts of the first examples, objects `[count]`."""
        features = self._first_features(split, count)
        unknown = self.tokenizer.pieces[self.tokenizer.unk_id], self._unknown_text()
        special = (self.tokenizer.cls_id, self.tokenizer.sep_id)
        is_word = (features["input_mask"] > 0) & ~np.isin(features["input_ids"], special)
        for segment in (0, 1):
            kept = is_word & (features["segment_ids"] == segment)
            texts = [
                self.tokenizer.decode(ids[row]).replace(*unknown)
                for ids, row in zip(features["input_ids"], kept)
            ]
            yield np.array([text.encode() for text in texts], object)

    def _unknown_text(self):
        """Returns a text that becomes the unknown token, as the name of this token does not."""
        for text in _RARE_CHARACTERS:
            (ids,) = self.tokenizer.encode_ids([text])
            if self.tokenizer.unk_id in ids:
                return text
        return ""  # the vocabulary has all these, and so hardly an unknown token


class TokenWriter(RowWriter):
    """Writes embeddings of tokens without padding, with the tokens; other predictions as they are.

    Tokens of the texts of `--input` have their places, "token_starts" and "token_ends", in code
    points; [CLS] and [SEP] have 0 and 0.
    """

    def __init__(self, pipeline: TokenPipeline, examples: Any):
        """Takes the pipeline and `core.predictions.Examples`, those of `--input` with `places`."""
        super().__init__(pipeline.data.all_class_names)
        self._pipeline, self._places = pipeline, getattr(examples, "places", None)
        self._count = 0

    def columns(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the columns of a batch, with the places of tokens; see `RowWriter`."""
        if "token_embeddings" in batch and self._places is not None:
            size = len(batch["num_tokens"])
            starts, ends = (x[self._count : self._count + size] for x in self._places)
            self._count += size
            batch = {**batch, "token_starts": starts, "token_ends": ends}
        return super().columns(batch)

    def line(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns the values of a line; see `RowWriter`."""
        if "token_embeddings" in row:
            row, num_tokens = dict(row), row["num_tokens"]
            for name in ("token_embeddings", "token_ids", "token_starts", "token_ends"):
                if name in row:
                    row[name] = row[name][:num_tokens]
            row["tokens"] = [self._pipeline.tokenizer.pieces[i] for i in row["token_ids"]]
        return super().line(row)


def _num_tokens(features, *labels):
    """Returns int32 `[n]`."""
    del labels
    return tf.reduce_sum(tf.cast(features["input_mask"], tf.int32), axis=1)


def _as_int32(tensor):
    return tf.cast(tensor, tf.int32) if tensor.dtype.is_integer else tensor
