"""Metadata of a prepared data set: features, shards, splits, text, annotations, ratings, clicks."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from common.constants import TRUNCATE
from common.names import printable

_SHOWN = 3  # names of each reason of `LeftOut`
_CRC32_IN_NAME = re.compile(r"-\d{5}-of-\d{5}-([0-9a-f]{8})\.tfrecord$")


def nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested dicts: `{"a": 1, "b/c": 2}` becomes `{"a": 1, "b": {"c": 2}}`."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *parents, last = name.split("/")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return nested


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the inverse of `nest`."""
    values = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            values.update(flatten(value, f"{prefix}{name}/"))
        else:
            values[f"{prefix}{name}"] = value
    return values


@dataclasses.dataclass(frozen=True)
class Feature:
    """A stored feature: one bytes value per example.

    Attributes:
      encoding: "raw", little-endian numbers; "jpeg" or "png", a file; "image", files of both kinds.
      dtype: dtype of the decoded tensor.
      shape: shape of one decoded example; None for sizes that differ between examples.
    """

    encoding: str
    dtype: str
    shape: tuple[int | None, ...]

    @property
    def is_image_file(self) -> bool:
        """Whether the value is a JPEG or PNG file."""
        return self.encoding in ("jpeg", "png", "image")

    @property
    def is_static(self) -> bool:
        """Whether all examples have the same shape."""
        return None not in self.shape

    @property
    def num_bytes(self) -> int:
        """Bytes of one decoded example of a static shape."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclasses.dataclass(frozen=True)
class ShardInfo:
    """One TFRecord file of a split.

    Attributes:
      name: file name, in the folder of the data set.
      num_bytes: size of the file.
      num_examples: number of records.
      crc32: checksum of the concatenated records; 0 if unknown.
      path: path of a repaired copy in another folder, or ""; never from dataset.json.
      offsets: index: the byte offsets of records 0, stride, 2 * stride...; () without an index.
    """

    name: str
    num_bytes: int
    num_examples: int
    crc32: int = 0
    path: str = ""
    offsets: tuple[int, ...] = ()

    @property
    def stride(self) -> int:
        """Number of records between two offsets of the index."""
        return max(1, -(-self.num_examples // max(1, len(self.offsets))))

    @property
    def is_named_by_content(self) -> bool:
        """Whether the checksum in the name, if any, is that of the records."""
        found = _CRC32_IN_NAME.search(self.name)
        return not found or self.crc32 in (0, int(found[1], 16))


@dataclasses.dataclass(frozen=True)
class SplitInfo:
    """A split as it was written.

    Attributes:
      label_histogram: number of examples per class; () without classes or labels, and for a
        repaired split.
      shards: the shards, in order.
      broken: `(name, reason)` of each source example that could not be stored.
      has_labels: False for a split to predict: its records have no class, and placeholders for
        features that are labels.
    """

    label_histogram: tuple[int, ...]
    shards: tuple[ShardInfo, ...]
    broken: tuple[tuple[str, str], ...] = ()
    has_labels: bool = True

    @property
    def num_examples(self) -> int:
        """Examples of all shards."""
        return sum(shard.num_examples for shard in self.shards)

    @property
    def num_bytes(self) -> int:
        """Bytes of all shards."""
        return sum(shard.num_bytes for shard in self.shards)

    @property
    def record_bytes(self) -> int:
        """Mean size of a record, at least 1."""
        return max(1, self.num_bytes // max(1, self.num_examples))


@dataclasses.dataclass
class LeftOut:
    """What the source of a data set holds that is not an example.

    Attributes:
      counts: number of files, rows or annotations, by reason.
      names: first names of each reason: paths below the source, or places in a file.
    """

    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    names: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, reason: str, name: str = "", count: int = 1) -> None:
        """Counts something that is left out."""
        self.counts[reason] = self.counts.get(reason, 0) + count
        shown = self.names.setdefault(reason, [])
        if name and len(shown) < _SHOWN:
            shown.append(printable(name))

    def update(self, other: LeftOut) -> None:
        """Adds what another object counts."""
        for reason, count in other.counts.items():
            self.add(reason, count=count)
            for name in other.names[reason]:
                self.add(reason, name, count=0)

    def lines(self) -> Iterator[str]:
        """Yields a line to print for each reason."""
        for reason, count in self.counts.items():
            example = ", ".join(self.names[reason])
            yield f"left out: {count} {reason}" + (f", for example {example}" if example else "")


@dataclasses.dataclass(frozen=True)
class TextSplit:
    """Sentences and tokens of a split; the end-of-sentence token counts.

    Attributes:
      pairs: number of sentence pairs.
      source_tokens: number of tokens of all sources.
      target_tokens: number of tokens of all targets.
      left_out: number of skipped pairs, by reason.
    """

    pairs: int
    source_tokens: int
    target_tokens: int
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)

    def describe(self, num_rows: int, max_length: int) -> str:
        """Returns one line about the split, stored in `num_rows` rows of `max_length` tokens."""
        full = max(self.source_tokens, self.target_tokens) / max(1, num_rows * max_length)
        line = (
            f"{self.pairs} pairs, {self.source_tokens} + {self.target_tokens} tokens, in "
            f"{num_rows} rows of {max_length}, {full:.0%} full"
        )
        left_out = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        return f"{line}; left out: {left_out}" if left_out else line


@dataclasses.dataclass(frozen=True)
class Text:
    """Vocabulary and sizes of a data set of text.

    Attributes:
      languages: languages of source and target.
      vocabulary: name of the SentencePiece file in the folder of the data set.
      vocab_size: number of token ids.
      max_length: tokens per row.
      splits: `{name: TextSplit}`.
    """

    languages: tuple[str, ...]
    vocabulary: str
    vocab_size: int
    max_length: int
    splits: dict[str, TextSplit]


@dataclasses.dataclass(frozen=True)
class WordPieceSplit:
    """Texts and tokens of a split of WordPiece text.

    Attributes:
      num_texts: number of texts, pairs of texts, sentences or questions in the source.
      num_tokens: number of stored tokens, without padding.
      num_truncated: number of texts that were truncated to max_length.
      left_out: number of texts that are not stored, by reason.
      side_file: name of a file in the folder of the data set with what the host needs to interpret
        predictions, such as the questions of SQuAD; "" without one.
    """

    num_texts: int
    num_tokens: int
    num_truncated: int = 0
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)
    side_file: str = ""

    def describe(self, num_rows: int, max_length: int) -> str:
        """Returns one line about the split, stored in `num_rows` rows of `max_length` tokens."""
        full = self.num_tokens / max(1, num_rows * max_length)
        line = (
            f"{self.num_texts} texts, {self.num_tokens} tokens, in {num_rows} rows of "
            f"{max_length}, {full:.0%} full, {self.num_truncated} truncated"
        )
        left_out = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        return f"{line}; left out: {left_out}" if left_out else line


@dataclasses.dataclass(frozen=True)
class WordPiece:
    """Vocabulary and sizes of a data set of WordPiece text, for BERT.

    Its features are "input_ids", "input_mask" and "segment_ids", integers `[max_length]`, and those
    of the task; see `token_pipeline`.

    Attributes:
      task: one of `common.constants.WORDPIECE_TASKS`.
      vocabulary: name of the vocab.txt in the folder of the data set.
      vocab_size: number of lines of vocab.txt.
      max_length: tokens per row, with [CLS] and [SEP].
      lower_case: whether text is lower-cased and loses its accents.
      has_pairs: whether an example has two texts.
      splits: `{name: WordPieceSplit}`.
      truncate: one of `common.constants.TRUNCATE`: where longer texts lose tokens.
    """

    task: str
    vocabulary: str
    vocab_size: int
    max_length: int
    lower_case: bool
    has_pairs: bool
    splits: dict[str, WordPieceSplit]
    truncate: str = TRUNCATE[0]


@dataclasses.dataclass(frozen=True)
class AnnotationsSplit:
    """Annotations of a split.

    Attributes:
      num_images: number of images.
      counts: number of boxes, or of pixels of the masks, of each class.
      corrected: number of annotations that were corrected, by reason.
      left_out: number of annotations that are not stored, by reason.
    """

    num_images: int
    counts: tuple[int, ...]
    corrected: dict[str, int] = dataclasses.field(default_factory=dict)
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)

    def describe(self, task: str) -> str:
        """Returns one line about the split."""
        what = "boxes" if task == "detection" else "pixels"
        parts = [f"{self.num_images} images, {sum(self.counts)} {what}"]
        for verb, reasons in (("corrected", self.corrected), ("left out", self.left_out)):
            listed = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
            parts += [f"{verb}: {listed}"] if listed else []
        return "; ".join(parts)


@dataclasses.dataclass(frozen=True)
class Annotations:
    """Boxes or masks of images.

    Detection has the labels "boxes", "classes", "is_crowd", "areas" and "image_id", segmentation
    the label "mask"; see `detection_pipeline` and `segmentation_pipeline`.

    Attributes:
      task: one of `common.constants.ANNOTATION_TASKS`.
      class_names: class names in the order of the classes, without a background class.
      max_boxes: rows of boxes per example; 0 for segmentation.
      splits: `{name: AnnotationsSplit}`.
    """

    task: str
    class_names: tuple[str, ...]
    max_boxes: int
    splits: dict[str, AnnotationsSplit]

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)


@dataclasses.dataclass(frozen=True)
class Ratings:
    """Interactions of users and items.

    Its features are "user" and "item", int32 scalars, indices; see `ratings_pipeline`.

    Attributes:
      num_users: number of users.
      num_items: number of items.
      num_negatives: negatives of each evaluation row.
      users: name of a file with the id of each user, one per line, in the order of the indices.
      items: name of a file with the id of each item and, after a tab, its interactions in "train".
        The most popular item is the first.
      negatives: `{split: name of a file}` of evaluation splits: int32 `[rows, num_negatives]`,
        little-endian; -1 where a user has no more items left.
      left_out: number of interactions that are not stored, by reason.
    """

    num_users: int
    num_items: int
    num_negatives: int
    users: str
    items: str
    negatives: dict[str, str]
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all files, in the folder of the data set."""
        return (self.users, self.items, *self.negatives.values())

    def describe(self) -> str:
        """Returns one line about the data set."""
        line = f"{self.num_users} users, {self.num_items} items"
        left_out = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        return f"{line}; left out: {left_out}" if left_out else line


@dataclasses.dataclass(frozen=True)
class Clicks:
    """Click logs: numbers, categories and whether there was a click, the class.

    Its features are "numbers", float32 `[numbers]`, and "categories", int32 `[categories]`, rows of
    the embedding table of each category; see `clicks_pipeline`.

    Attributes:
      table_rows: number of rows of each table. Row 0 is for a missing value; then come the values
        of the vocabulary, the most frequent first, and the hashed rows of all other values.
      vocabulary_rows: number of rows of each table before the hashed ones.
      vocabulary: name of a file with a line for each of them, table after table: the name of the
        category, a tab, and the value, "" if missing.
      missing: number of missing values of all splits, by name; names without any are left out.
    """

    table_rows: tuple[int, ...]
    vocabulary_rows: tuple[int, ...]
    vocabulary: str
    missing: dict[str, int] = dataclasses.field(default_factory=dict)

    def describe(self) -> str:
        """Returns one line about the data set."""
        line = (
            f"{len(self.table_rows)} categories, {sum(self.table_rows)} rows of embeddings, "
            f"{sum(self.table_rows) - sum(self.vocabulary_rows)} of them hashed"
        )
        missing = sum(self.missing.values())
        return f"{line}; {missing} missing values" if missing else line


@dataclasses.dataclass(frozen=True)
class Audio:
    """Recordings with classes or with transcripts.

    Its features are "waveform", int16 `[max_samples]`, padded with zeros, and "num_samples", an
    int32 scalar. With transcripts it has the label "tokens", int32 `[max_tokens]`, padded with 0;
    see `audio_pipeline`.

    Attributes:
      sample_rate: samples per second, Hz.
      max_samples: samples of a row.
      vocabulary: name of a file with the characters of the transcripts, one per line, in the order
        of the tokens from 1; "" without transcripts. Token 0 is the blank of CTC.
      vocab_size: number of tokens, with the blank; 0 without transcripts.
      max_tokens: tokens of a row; 0 without transcripts.
    """

    sample_rate: int
    max_samples: int
    vocabulary: str = ""
    vocab_size: int = 0
    max_tokens: int = 0

    def describe(self) -> str:
        """Returns one line about the data set."""
        line = f"{self.sample_rate} Hz, up to {self.max_samples / self.sample_rate:g} s"
        if not self.vocabulary:
            return line
        return f"{line}, {self.vocab_size - 1} characters, texts of up to {self.max_tokens}"
