"""Random images, text, tables and recordings at no input cost: the highest throughput."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from common.constants import DROPOUT_SEED, EOS
from input_fns.core import records
from input_fns.core.input_context import HostShard
from input_fns.dataset_info import (
    Annotations,
    Audio,
    Clicks,
    DatasetInfo,
    Feature,
    Ratings,
    Text,
    WordPiece,
    splits_without_files,
)
from input_fns.record_pipeline import RecordPipeline

NAME = "synthetic"
_SPLITS = {"train": 50_000, "test": 10_000}
_EVAL_BLOCK, _AUDIO_BLOCK = 1024, 64
_SENTENCE_TOKENS = 16
# Rows of boxes; COCO's images have up to 93.
_MAX_BOXES = 100
# Negatives of evaluation (He et al. 2017, arXiv:1708.05031); numbers of Criteo's click logs.
_NUM_NEGATIVES, _NUM_NUMBERS = 99, 13


def dataset(image_size: tuple[int, int], num_classes: int) -> DatasetInfo:
    """Returns a data set of RGB images without files: 50,000 train and 10,000 test."""
    feature = Feature("raw", "uint8", (*image_size, 3))
    class_names = tuple(f"class {number}" for number in range(num_classes))
    return DatasetInfo(NAME, "", {"image": feature}, class_names, splits_without_files(_SPLITS))


def annotated_dataset(task: str, image_size: tuple[int, int], num_classes: int) -> DatasetInfo:
    """Returns a data set of RGB images with 100 boxes each, or with masks, without files.

    Args:
      task: one of ANNOTATION_TASKS.
      image_size: `(height, width)`.
      num_classes: number of classes.
    """
    max_boxes = _MAX_BOXES if task == "detection" else 0
    labels = {"mask": Feature("raw", "uint8", (*image_size, 1))}
    if max_boxes:
        labels = {
            "boxes": Feature("raw", "float32", (max_boxes, 4)),
            "classes": Feature("raw", "int32", (max_boxes,)),
            "is_crowd": Feature("raw", "uint8", (max_boxes,)),
            "areas": Feature("raw", "float32", (max_boxes,)),
            "image_id": Feature("raw", "int64", ()),
        }
    class_names = tuple(f"class {number}" for number in range(num_classes))
    return DatasetInfo(
        NAME,
        "",
        {"image": Feature("raw", "uint8", (*image_size, 3)), **labels},
        (),
        splits_without_files(_SPLITS),
        labels=tuple(labels),
        annotations=Annotations(task, class_names, max_boxes, {}),
    )


def text_dataset(max_length: int, vocab_size: int) -> DatasetInfo:
    """Returns a data set of token rows without files: 50,000 train and 10,000 test."""
    feature = Feature("raw", "int32", (max_length,))
    features = {"source": feature, "target": feature}
    text = Text((), "", vocab_size, max_length, {})
    return DatasetInfo(NAME, "", features, (), splits_without_files(_SPLITS), text)


def token_dataset(task: str, max_length: int, vocab_size: int) -> DatasetInfo:
    """Returns a data set of WordPiece ids without files, for one of WORDPIECE_TASKS.

    Pre-training predicts 15 % of the tokens. There are 2 classes, or 9 tags.
    """
    row, number = Feature("raw", "int32", (max_length,)), Feature("raw", "int32", ())
    predictions = Feature("raw", "int32", (math.ceil(0.15 * max_length),))
    labels = {
        "classification": {},
        "regression": {"score": Feature("raw", "float32", ())},
        "token_classification": {"tag_ids": row},
        "squad": {"start_positions": number, "end_positions": number},
        "pretraining": {
            "masked_lm_ids": predictions,
            "masked_lm_weights": predictions,
            "next_sentence_labels": number,
        },
    }[task]
    features = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), row)
    if task == "pretraining":
        features["masked_lm_positions"] = predictions
    return DatasetInfo(
        NAME,
        "",
        {**features, **labels},
        ("0", "1") if task == "classification" else (),
        splits_without_files(_SPLITS),
        labels=tuple(labels),
        properties={"num_tags": 9} if task == "token_classification" else {},
        wordpiece=WordPiece(task, "", vocab_size, max_length, True, False, {}),
    )


def ratings_dataset(num_users: int, num_items: int) -> DatasetInfo:
    """Returns a data set of ratings without files: 50,000 train and 10,000 test."""
    feature = Feature("raw", "int32", ())
    ratings = Ratings(num_users, num_items, _NUM_NEGATIVES, "", "", {})
    splits = splits_without_files(_SPLITS)
    return DatasetInfo(NAME, "", {"user": feature, "item": feature}, (), splits, ratings=ratings)


def clicks_dataset(*table_rows: int) -> DatasetInfo:
    """Returns a data set of click logs without files: 50,000 train and 10,000 test.

    Args:
      *table_rows: number of rows of the table of each category.
    """
    features = {
        "numbers": Feature("raw", "float32", (_NUM_NUMBERS,)),
        "categories": Feature("raw", "int32", (len(table_rows),)),
    }
    clicks = Clicks(table_rows, table_rows, "")
    splits = splits_without_files(_SPLITS)
    return DatasetInfo(NAME, "", features, ("no click", "click"), splits, clicks=clicks)


def audio_dataset(
    sample_rate: int, max_samples: int, vocab_size: int, max_tokens: int, num_classes: int
) -> DatasetInfo:
    """Returns a data set of recordings without files: 50,000 train and 10,000 test.

    Args:
      sample_rate: samples per second.
      max_samples: samples of a row.
      vocab_size: tokens of the transcripts, with the blank; 0 for classes.
      max_tokens: tokens of a row.
      num_classes: number of classes, without transcripts.
    """
    features = {
        "waveform": Feature("raw", "int16", (max_samples,)),
        "num_samples": Feature("raw", "int32", ()),
    }
    class_names = tuple(f"class {number}" for number in range(num_classes))
    vocabulary, labels = "", ()
    if vocab_size:
        features["tokens"] = Feature("raw", "int32", (max_tokens,))
        class_names, vocabulary, labels = (), "none", ("tokens",)
    audio = Audio(sample_rate, max_samples, vocabulary, vocab_size, max_tokens)
    splits = splits_without_files(_SPLITS)
    return DatasetInfo(NAME, "", features, class_names, splits, labels=labels, audio=audio)


class SyntheticPipeline(RecordPipeline):
    """Feeds random examples with the shapes and sizes of a data set."""

    has_records = False

    def __init__(
        self,
        data: DatasetInfo,
        features: dict[str, Feature],
        mixes: bool = False,
        num_negatives: int = 0,
        masks: Mapping[str, int] | None = None,
    ):
        """Feeds examples like those of `data`.

        Args:
          data: data set whose splits, sizes and classes are imitated.
          features: features of an example in prediction.
          mixes: whether the augmentation mixes images: training labels are then float32
            `[batch, num_classes]`, or four times as many boxes.
          num_negatives: negatives of a training row of ratings.
          masks: number of masks of each kind of a training row of recordings, by name.
        """
        self.data, self._features, self._mixes = data, features, mixes
        self._num_negatives, self._masks = num_negatives, masks or {}

    @property
    def features(self) -> dict[str, Feature]:
        """Features of an example in prediction, as the model gets them."""
        return self._features

    def train_input_fn(self, split: str, seed: int, start_step: int = 0):
        """Returns an input_fn that repeats one batch."""
        del split, start_step

        def input_fn(params):
            size = params["batch_size"]
            features, labels = self._batch(size, seed)
            if self.data.ratings:
                candidates = slice(1 + self._num_negatives)
                features["items"] = features["items"][:, candidates]
                share = np.float32(1 / self.data.ratings.num_items)
                features["sampling_probability"] = np.full(size, share)
                labels = {"interaction": labels["interaction"][:, candidates]}
            for name, count in self._masks.items():
                start = np.random.default_rng(seed).random([size, count, 1], np.float32)
                features[name] = np.concatenate([start, start + np.float32(0.1)], axis=2)
            seeds = np.random.default_rng(seed).integers(0, 2**24, [size, 2], np.int32)
            features = {**features, DROPOUT_SEED: seeds}
            if self._mixes and self.data.annotations:
                labels = {name: np.concatenate([rows] * 4, 1) for name, rows in labels.items()}
            elif self._mixes:
                labels = np.eye(self.data.num_classes, dtype=np.float32)[labels]
            return _repeated(features, labels)

        return input_fn

    def in_order(self, split: str, host_shard: HostShard | None = None) -> tf.data.Dataset:
        """Returns as many examples as the split has, in batches of any size."""
        block = _AUDIO_BLOCK if self.data.audio else _EVAL_BLOCK
        whole, rest = divmod(self.data.split(split).num_examples, block)
        batch = self._batch(block, seed=0)
        blocks = _repeated(*batch).take(whole)
        first = tf.nest.map_structure(lambda values: values[:rest], batch)
        dataset = blocks.concatenate(_repeated(*first).take(int(rest > 0)))
        return records.select_host_rows(dataset, host_shard)

    def _batch(self, size, seed):
        random = np.random.default_rng(seed)
        if self.data.text:
            rows = random.integers(
                3, self.data.text.vocab_size, [2, size, self.data.text.max_length], np.int32
            )
            rows[..., _SENTENCE_TOKENS - 1 :: _SENTENCE_TOKENS] = rows[..., -1] = EOS
            return {"source": rows[0], "target": rows[1]}, rows[1]
        if self.data.wordpiece:
            return self._tokens(size, random)
        if self.data.annotations:
            return self._annotated(size, random)
        if self.data.ratings:
            return self._rated(size, random)
        if self.data.clicks:
            return self._clicked(size, random)
        if self.data.audio:
            return self._recorded(size, random)
        features = {
            name: random.integers(0, 256, [size, *feature.shape]).astype(feature.dtype)
            for name, feature in self.features.items()
        }
        return features, random.integers(0, self.data.num_classes, size).astype(np.int32)

    def host_examples(self, split: str, batch_size: int):
        """Yields NumPy `(features, labels)`; for boxes as `DetectionPipeline.host_examples`."""
        first = 0
        for features, labels in RecordPipeline.host_examples(self, split, batch_size):
            if "boxes" in labels:
                image_id = np.arange(first, first + len(labels["boxes"]))
                first += len(image_id)
                areas = np.prod(labels["boxes"][..., 2:] - labels["boxes"][..., :2], axis=-1)
                yield {"image_id": image_id}, {**labels, "areas": areas, "image_id": image_id}
            else:
                yield features, labels

    def _annotated(self, size, random):
        """Returns images as large as their originals; boxes of up to half the sides, or masks."""
        annotations, image = self.data.annotations, self.features["image"]
        features = {"image": random.integers(0, 256, [size, *image.shape], np.uint8)}
        height, width = image.shape[:2]
        if annotations.task == "segmentation":
            mask = random.integers(0, annotations.num_classes, [size, height, width], np.uint8)
            return features, {"mask": mask}
        features["image_info"] = np.tile(np.float32([height, width, 1]), [size, 1])
        rows = [size, annotations.max_boxes]
        low, sides = random.uniform(size=[2, *rows, 2]) * 0.5
        corners = np.concatenate([low, low + sides], axis=-1)
        return features, {
            "boxes": (corners * [height, width, height, width]).astype(np.float32),
            "classes": random.integers(0, annotations.num_classes, rows, np.int32),
            "is_crowd": np.zeros(rows, np.int32),
        }

    def _rated(self, size, random):
        """Returns users with the items that training or evaluation needs, a positive first."""
        ratings = self.data.ratings
        width = 1 + max(ratings.num_negatives, self._num_negatives)
        items = random.integers(0, ratings.num_items, [size, width], np.int32)
        interaction = np.zeros([size, width], np.float32)
        interaction[:, 0] = 1
        user = random.integers(0, ratings.num_users, size, np.int32)
        return {"user": user, "items": items}, {"interaction": interaction}

    def _clicked(self, size, random):
        """Returns uniform rows of the tables and numbers like log(1 + x) of counts."""
        rows = self.data.clicks.table_rows
        shape = self.features["numbers"].shape
        features = {
            "numbers": np.log1p(random.exponential(10, [size, *shape])).astype(np.float32),
            "categories": random.integers(0, rows, [size, len(rows)]).astype(np.int32),
        }
        return features, random.integers(0, 2, size).astype(np.int32)

    def _recorded(self, size, random):
        """Returns noise of half to all of the samples, with a class or characters."""
        audio = self.data.audio
        num_samples = random.integers(audio.max_samples // 2, audio.max_samples + 1, size)
        is_inside = np.arange(audio.max_samples) < num_samples[:, np.newaxis]
        # Windows of one array: millions of random numbers take seconds.
        noise = random.normal(size=audio.max_samples + size, scale=0.1).astype(np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(noise, audio.max_samples)[:size]
        features = {
            "waveform": windows * is_inside,
            "num_samples": num_samples.astype(np.int32),
        }
        if not audio.vocab_size:
            return features, random.integers(0, self.data.num_classes, size).astype(np.int32)
        tokens = random.integers(1, audio.vocab_size, [size, audio.max_tokens])
        # Half as many characters as there could be: a text must fit into its recording.
        num_tokens = num_samples * audio.max_tokens // (2 * audio.max_samples)
        tokens *= np.arange(audio.max_tokens) < num_tokens[:, np.newaxis]
        return features, {"tokens": tokens.astype(np.int32)}

    def _tokens(self, size, random):
        """Returns rows without padding and random labels of the task."""
        data = self.data
        limits = {"score": 2, **{name: limit for name, (_, limit) in data.limits.items()}}
        values = {
            name: random.integers(0, limits[name], [size, *feature.shape], np.int32)
            for name, feature in data.features.items()
        }
        for name in ("input_mask", "masked_lm_weights"):
            if name in values:
                values[name] = np.ones_like(values[name])
        labels = {name: values.pop(name) for name in data.labels}
        if "score" in labels:
            labels["score"] = labels["score"].astype(np.float32)
        if data.num_classes:
            return values, random.integers(0, data.num_classes, size).astype(np.int32)
        return values, labels


def _repeated(features, labels):
    # A generator: arrays as tensors would become constants of the graph.
    spec = tf.nest.map_structure(
        lambda array: tf.TensorSpec(array.shape, array.dtype), (features, labels)
    )
    once = tf.data.Dataset.from_generator(lambda: [(features, labels)], output_signature=spec)
    return once.cache().repeat()
