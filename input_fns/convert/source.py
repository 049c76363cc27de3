"""Options of a converter, and the raw data set that it returns: splits of rows to store."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from common.constants import TRUNCATE
from input_fns.dataset_info import Feature, LeftOut
from input_fns.image.sources.boxes import Notes
from input_fns.kinds import Kind


@dataclasses.dataclass(frozen=True)
class Options:
    """Values of the flags of prepare_data.py with these names."""

    dataset: str
    name: str = ""
    source: str = ""
    skip: tuple[str, ...] = ()
    split_files: tuple[str, ...] = ()
    encoding: str = ""
    delimiter: str = ""
    pixel_range: tuple[float, float] | None = None
    image_size: tuple[int, int] | None = None
    channels: int = 3
    class_names: tuple[str, ...] = ()
    csv: str = ""
    image_column: str = ""
    audio_column: str = ""
    user_column: str = ""
    item_column: str = ""
    rating_column: str = ""
    time_column: str = ""
    label_columns: tuple[str, ...] = ()
    group_column: str = ""
    split_column: str = ""
    languages: tuple[str, ...] = ()
    vocabulary: str = ""
    vocab_size: int = 8192
    subwords: str = "unigram"
    max_length: int = 128
    task: str = "classification"
    columns: tuple[str, ...] = ()
    text_columns: tuple[str, ...] = ()
    lower_case: bool = True
    truncate: str = TRUNCATE[0]
    max_predictions_per_seq: int = 0
    masked_lm_prob: float = 0.15
    whole_word_mask: bool = False
    dupe_factor: int = 10
    short_seq_prob: float = 0.1
    doc_stride: int = 128
    max_query_length: int = 64
    annotations: tuple[str, ...] = ()
    image_folder: str = ""
    audio_folder: str = ""
    xml_folder: str = ""
    mask_folder: str = ""
    image_suffix: str = ""
    mask_suffix: str = ""
    mask_values: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    max_boxes: int = 0
    box_origin: int = 1
    min_frequency: int = 10
    hash_rows: int = 100
    max_rows: int = 2**22
    sample_rate: int = 16000
    max_seconds: float = 16.0
    test_speaker: str = ""
    validation_fraction: float | None = None
    test_fraction: float | None = None
    seed: int = 0
    workers: int = 0


@dataclasses.dataclass(frozen=True)
class Row:
    """An example as it is stored, without its class.

    Attributes:
      values: `{feature: bytes}`.
      features: `{feature: Feature}`; shapes of image files may differ between the rows of a split.
      name: name of the source file, "" if the example is not a file.
      counts: boxes or pixels of each class, int64 `[classes]`, of annotated images; else None.
      notes: annotations of the image that were corrected or left out.
    """

    values: dict[str, bytes]
    features: dict[str, Feature]
    name: str = ""
    counts: np.ndarray | None = None
    notes: Notes = dataclasses.field(default_factory=Notes)


@dataclasses.dataclass(frozen=True)
class Broken:
    """A source example that cannot be stored."""

    name: str
    reason: str


class RawSplit(Protocol):
    """A split in source order. Iterating yields a `Row` or a `Broken` for each example.

    Attributes:
      labels: classes, int64 `[size]`, or None without classes.
      num_bytes: approximate size of the rows.
      groups: `[size]`, equal for examples that must stay in one split, or None.
      paths: optional, paths of the files that iterating reads.
      smallest: optional, number of examples that a split needs, if more than 1.
      has_labels: optional, False if the split can only be predicted. Features that are labels are
        placeholders then.
    """

    labels: np.ndarray | None
    num_bytes: int
    groups: np.ndarray | None

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Row | Broken]: ...

    def take(self, indices: Sequence[int]) -> RawSplit:
        """Returns the split of these examples, in the order of the indices."""


def has_labels(split: RawSplit) -> bool:
    """Whether a split can be trained on and evaluated."""
    return getattr(split, "has_labels", True)


@dataclasses.dataclass(frozen=True)
class RawArrays:
    """A split in memory: images `[size, height, width, channels]` and int64 classes `[size]`."""

    images: np.ndarray
    labels: np.ndarray
    groups: None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of the pixels."""
        return self.images.nbytes

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Row]:
        features = {"image": Feature("raw", self.images.dtype.name, self.images.shape[1:])}
        little_endian = self.images.dtype.newbyteorder("<")
        for image in self.images:
            yield Row({"image": image.astype(little_endian, copy=False).tobytes()}, features)

    def take(self, indices: Sequence[int]) -> RawArrays:
        """Returns the split of these examples, in the order of the indices."""
        return RawArrays(self.images[indices], self.labels[indices])


@dataclasses.dataclass(frozen=True)
class RawDataset:
    """A data set as its source holds it.

    Attributes:
      name: name of the data set.
      class_names: class names in the order of the labels; () without classes.
      splits: `{name: RawSplit}`. The function of a custom format may give examples instead: see
        `custom.RawExamples`.
      files: other files of the data set, `{name: content}`.
      labels: names of the features that are labels; "a" also names all features "a/...".
      properties: free-form properties that models may read, JSON scalars or lists of them.
      kind: kind of data with its metadata, such as `text.parallel_kind.Text`; None for images with
        classes and for records. Of annotated images, its splits have the annotations of no image
        that is there, and the writer adds those of the rows.
      left_out: rows and annotations that are not examples. `convert.read` adds the files below
        the source that are not used.
      left_out_paths: `{path: reason}` of unused files, for reasons that the source knows.
    """

    name: str
    class_names: tuple[str, ...]
    splits: dict[str, RawSplit]
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)
    labels: tuple[str, ...] = ()
    properties: dict[str, Any] = dataclasses.field(default_factory=dict)
    kind: Kind | None = None
    left_out: LeftOut = dataclasses.field(default_factory=LeftOut)
    left_out_paths: dict[str, str] = dataclasses.field(default_factory=dict)
