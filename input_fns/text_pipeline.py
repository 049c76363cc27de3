"""The input_fns of a data set of parallel text: from shards to batches of token ids."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from input_fns import DataError, caching, images, input_context, records, serving, vocabulary
from input_fns.dataset_info import Dataset, Feature
from input_fns.records import plain
from input_fns.vocabulary import Vocabulary

_SIDES = ("source", "target")
OUTSIDE_VOCABULARY = "a token id in the shards is outside the vocabulary of dataset.json"
# A graph holds them as a constant, and may not have more than twice as many bytes.
_MAX_ROWS_BYTES = 2**30


@dataclasses.dataclass(frozen=True)
class TextPipeline:
    """A data set of rows of token ids, as a model sees it.

    A row, int32 `[max_length]`, holds sentences that each end in `vocabulary.EOS`, then
    `vocabulary.PAD`: in "train" several, in other splits one.

    Attributes:
      data: the data set.
      cache: "auto", "memory", "none", or a local folder; see `caching`.
      serves_text: whether a SavedModel takes text too, by TensorFlow Text's operations.
    """

    data: Dataset
    cache: str = caching.AUTO
    serves_text: bool = False

    @property
    def features(self) -> dict[str, Feature]:
        """What the model sees in prediction, `{name: Feature}`."""
        return {"source": Feature("raw", "int32", (self.data.text.max_length,))}

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The pieces that the ids are of."""
        return vocabulary.load(self._vocabulary_path)

    @property
    def _vocabulary_path(self):
        return os.path.join(self.data.data_dir, self.data.text.vocabulary)

    def file_names(self, split: str) -> None:
        """Returns None: sentences are no files."""
        del split

    def train_input_fn(self, split: str, seed: int, start_step: int = 0):
        """Returns an input_fn for training: endless, rows reshuffled each epoch.

        Args:
          split: name of the split.
          seed: of the order.
          start_step: global batches that an earlier run has used up. Training continues after
            them; see `records.train_from_files` for large splits.

        Returns:
          `input_fn(params) -> tf.data.Dataset` of `({"source", "target"}, target)` in batches of
          exactly `params["batch_size"]` rows, int32 `[batch, max_length]`, and what
          `records.split_numbers` adds. With a
          `params["context"]`, as a TPUEstimator gives it, those of this host alone.

        Raises:
          DataError: `cache` has no room for the split.
        """
        plan = caching.plan(self.data, split, self.cache)

        def input_fn(params):
            share = input_context.of_params(params)
            files, size = self.data.files(split), self.data.split(split)
            if plan.in_memory:
                rows = records.in_order(files, self._parse_checked)
                dataset = records.train_from_memory(
                    rows, size.num_examples, _no_numbers, share, seed, start_step
                )
            else:
                dataset = records.train_from_files(
                    files,
                    [shard.num_examples for shard in size.shards],
                    self._parse_checked,
                    _no_numbers,
                    share,
                    seed,
                    start_step,
                    size.record_bytes,
                    plan.path,
                )
            return records.prefetched(dataset.map(_with_seeds))

        return input_fn

    def eval_input_fn(self, split: str):
        """Returns an input_fn for exact evaluation: every row once, in order.

        Returns:
          `input_fn(params) -> tf.data.Dataset` as in training. The last global batch is padded;
          `features["weight"]`, float32 `[batch]`, is 1 for a row and 0 for padding.
        """

        def input_fn(params):
            dataset = self._in_order(split).map(_with_labels)
            return records.evaluate(dataset, input_context.of_params(params))

        return input_fn

    def predict_input_fn(self, split: str):
        """Returns an input_fn for prediction: the source of every row once, in order, no padding.

        Returns:
          `input_fn(params) -> tf.data.Dataset` of `{"source": int32 [batch, max_length]}`; the last
          batch may be smaller than `params["batch_size"]` (a TPUEstimator pads and trims it).
        """

        def input_fn(params):
            dataset = self._in_order(split).map(lambda rows: {"source": rows["source"]})
            return records.untuned(dataset.rebatch(params["batch_size"]).prefetch(2))

        return input_fn

    def host_input_fn(self, split: str):
        """Returns an input_fn of the sources, longest first, in the order of `host_examples`."""
        return lambda params: self.rows_input_fn(self._longest_first(split)["source"])(params)

    def host_examples(self, split: str, batch_size: int):
        """Yields `(features, labels)`, NumPy batches in the order of `host_input_fn`."""
        rows = self._longest_first(split)
        for start in range(0, len(rows["source"]), batch_size):
            batch = {name: array[start : start + batch_size] for name, array in rows.items()}
            yield batch, batch["target"]

    def _longest_first(self, split):
        rows = self.stored_rows(split)
        order = np.argsort(-np.count_nonzero(rows["source"], axis=1), kind="stable")
        return {name: array[order] for name, array in rows.items()}

    def rows_input_fn(self, rows: np.ndarray):
        """Returns an input_fn for the prediction of int32 `[sentences, max_length]`, in order."""
        if rows.nbytes > _MAX_ROWS_BYTES:
            raise DataError(
                f"{len(rows)} sentences are more than are translated at once; cut them into "
                f"{-(-rows.nbytes // _MAX_ROWS_BYTES)} parts"
            )

        def input_fn(params):
            dataset = tf.data.Dataset.from_tensor_slices({"source": rows})
            return dataset.batch(params["batch_size"])

        return input_fn

    def rows(self, sentences: Iterable[Sequence[int]]) -> np.ndarray:
        """Returns the ids of sentences, none longer than a row, as int32 `[n, max_length]`."""
        rows = []
        for ids in sentences:
            rows.append(np.full(self.data.text.max_length, vocabulary.PAD, np.int32))
            rows[-1][: len(ids)] = ids
        return np.stack(rows)

    def stored_rows(self, split: str, count: int | None = None) -> dict[str, np.ndarray]:
        """Returns the rows of a split, or the first of them, `{"source", "target"}`, int32."""
        count = count or self.data.split(split).num_examples
        return serving.first_of(lambda: self._in_order(split), count)

    @property
    def assets(self) -> tuple[str, ...]:
        """Files that a SavedModel takes with it."""
        return (self._vocabulary_path,)

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the ways into a SavedModel, by signature: rows of token ids, records, texts."""
        del top_k  # of classes
        receivers = {
            serving.RAW: serving.Receiver(
                serving.raw_inputs(self.features), dict, dict, self._first_rows
            ),
            serving.TF_EXAMPLE: serving.Receiver(
                serving.string_inputs(serving.EXAMPLES), self._of_records, dict, self._first_records
            ),
        }
        if self.serves_text:
            receivers[serving.TEXT] = serving.Receiver(
                serving.string_inputs("text"), self._of_texts, self._to_texts, self._first_texts
            )
        return receivers

    def _of_records(self, inputs):
        return _as_int32(self._parse(inputs[serving.EXAMPLES], ("source",), may_be_empty=True))

    def _of_texts(self, inputs):
        from input_fns import text_ops  # few have TensorFlow Text

        max_length = self.data.text.max_length
        return {"source": text_ops.to_rows(inputs["text"], self.vocabulary, max_length)}

    def _to_texts(self, predictions):
        from input_fns import text_ops

        text = text_ops.to_text(predictions["target"], self.vocabulary)
        return {"text": text, "score": predictions["score"]}

    def _first_rows(self, split, count):
        return {"source": self.stored_rows(split, count)["source"]}

    def _first_records(self, split, count):
        return {serving.EXAMPLES: serving.first_records(self.data.files(split), count)}

    def _first_texts(self, split, count):
        texts = self.vocabulary.decode(self.stored_rows(split, count)["source"])
        return {"text": np.array([text.encode() for text in texts], object)}

    def _parse(self, serialized, sides=_SIDES, may_be_empty=False):
        """From serialised examples to rows as they are stored."""
        features = {name: self.data.features[name] for name in sides}
        parse = images.stored_fn(features, has_labels=False, may_be_empty=may_be_empty)
        stored, _ = parse(serialized)
        return {name: images.decode_raw(stored[name], features[name]) for name in sides}

    def _in_order(self, split):
        """Every row once, in order, int32."""
        rows = records.in_order(self.data.files(split), self._parse_checked)
        return rows.map(_as_int32)

    def _parse_checked(self, serialized):
        """The same of what lies in shards, where an id may be none of the vocabulary."""
        size = self.data.text.vocab_size
        return {
            name: images.checked(ids, size, OUTSIDE_VOCABULARY)
            for name, ids in self._parse(serialized).items()
        }


@plain
def _as_int32(rows):
    return {name: tf.cast(row, tf.int32) for name, row in rows.items()}


@plain
def _with_seeds(rows, numbers):
    rows, seeds = _as_int32(rows), records.split_numbers(numbers)[1]
    return {**rows, **seeds}, rows["target"]


@plain
def _with_labels(rows):
    return rows, rows["target"]


def _no_numbers(count, key):
    del key
    return tf.zeros([count, 0])
