"""The raw data set that a source returns: splits of examples, and how one is read."""

from __future__ import annotations

import dataclasses
import os
import zlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from input_fns.core.target import Target
from input_fns.dataset_info import Feature, LeftOut
from input_fns.image.sources.boxes import Notes
from input_fns.kinds import Kind


@dataclasses.dataclass(frozen=True)
class Row:
    """An example as it is stored, without its class.

    Attributes:
      values: `{feature: bytes}`.
      features: `{feature: Feature}`; shapes of image files may differ between the rows of a split.
      name: name of the source file, "" if the example is not a file.
      counts: boxes or pixels of each class, int64 `[classes]`, of annotated images; else None.
      notes: annotations of the image that were corrected or left out.
      stated_range: `(path, lowest, highest)` if the values were scaled from the range that the file
        states, which must be that of all files; else None.
      label: its class if the split has classes without an array of them; else None.
    """

    values: dict[str, bytes]
    features: dict[str, Feature]
    name: str = ""
    counts: np.ndarray | None = None
    notes: Notes = dataclasses.field(default_factory=Notes)
    stated_range: tuple[str, float, float] | None = None
    label: int | None = None


@dataclasses.dataclass(frozen=True)
class Rows:
    """Examples of one size, which are serialized together.

    Attributes:
      values: `{feature: array [n, ...]}`, little-endian.
      features: see `Row`.
      labels: int `[n]`, or None; see `Row.label`.
    """

    values: dict[str, np.ndarray]
    features: dict[str, Feature]
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    def __iter__(self) -> Iterator[Row]:
        for i in range(len(self)):
            values = {name: array[i].tobytes() for name, array in self.values.items()}
            label = None if self.labels is None else int(self.labels[i])
            yield Row(values, self.features, label=label)


@dataclasses.dataclass(frozen=True)
class Broken:
    """A source example that cannot be stored."""

    name: str
    reason: str


class RawSplit:
    """A split in source order: the keys of its examples, and `read`, which reads one.

    A subclass is a dataclass that can be pickled: a worker process gets the part of the split that
    it writes. `KEYS` names the fields that have a value for each example; the others are the same
    for all. A class without `read`, of a user or of a stream, has `__iter__`, `__len__`, `take`,
    `labels`, `groups` and `num_bytes`; it need not be a subclass, and is iterated once.

    Attributes:
      KEYS: names of fields: arrays `[size, ...]`, lists, tuples of them, or None.
      labels: classes, int64 `[size]`, or None without classes. A subclass that declares it as a
        field inherits the default, so fields without one come first.
      groups: `[size]`, equal for examples that must stay in one split, or None; likewise.
      targets: float32 `[size, n]` of a data set with a `target`, which the writer stores; NaN where
        it is unknown. None otherwise.
      has_labels: False if the split can only be predicted. Features that are labels are
        placeholders then.
      smallest: number of examples that a split needs.
      in_workers: whether worker processes may read the examples.
      paths: optional, paths of the files that are read.
    """

    KEYS: tuple[str, ...] = ()
    labels: np.ndarray | None = None
    groups: np.ndarray | None = None
    targets: np.ndarray | None = None
    has_labels = True
    smallest = 1
    in_workers = True

    @property
    def num_bytes(self) -> int:
        """Approximate size of the rows; by default they are as large as the first one."""
        return len(self) * sum(map(len, self.read(0).values.values()))

    def __len__(self) -> int:
        return len(getattr(self, self.KEYS[0]))

    def __iter__(self) -> Iterator[Row | Broken]:
        return map(self.read, range(len(self)))

    def read(self, i: int) -> Row | Broken:
        """Reads example `i`."""
        raise NotImplementedError

    def blocks(self) -> Iterator[Rows] | None:
        """Yields all examples in blocks, if they have one size; else returns None.

        They are written several times faster than those of `read`.
        """
        return None

    def take(self, indices: Sequence[int]):
        """Returns the split of these examples, in the order of the indices."""
        return dataclasses.replace(
            self, **{name: chosen(getattr(self, name), indices) for name in self.KEYS}
        )

    def part(self, begin: int, end: int):
        """Returns the examples from `begin` to `end`, to read them in any process."""
        return RawSplit.take(self, slice(begin, end))


class BlockSplit(RawSplit):
    """A split whose examples are made in blocks: a subclass has `blocks` instead of `read`."""

    def __iter__(self) -> Iterator[Row]:
        for rows in self.blocks():
            yield from rows

    def read(self, i: int) -> Row:
        """Returns example `i`."""
        return next(iter(next(self.part(i, i + 1).blocks())))


def has_labels(split: RawSplit) -> bool:
    """Whether a split can be trained on and evaluated; a class of a user may not say it."""
    return getattr(split, "has_labels", True)


def is_known(targets: np.ndarray | None) -> bool:
    """Whether targets, float32 `[size, n]`, are not those of a split to predict."""
    return targets is not None and not np.isnan(targets).all()


def chosen(values: Any, indices: Sequence[int] | slice) -> Any:
    """Returns the values at indices of an array, of a list, or of each of a tuple of these."""
    if isinstance(values, tuple):
        return tuple(chosen(one, indices) for one in values)
    if isinstance(values, list) and not isinstance(indices, slice):
        return [values[i] for i in indices]
    return None if values is None else values[indices]


def numbered(values: Iterable[Hashable], size: int) -> np.ndarray:
    """Returns the number of each value by first appearance, int64 `[size]`: equal ones are one."""
    number_of: dict[Hashable, int] = {}
    numbers = (number_of.setdefault(value, len(number_of)) for value in values)
    return np.fromiter(numbers, np.int64, size)


@dataclasses.dataclass(frozen=True)
class RawArrays(RawSplit):
    """A split in memory: images `[size, height, width, channels]` and int64 classes `[size]`."""

    KEYS = ("images", "labels")

    images: np.ndarray
    labels: np.ndarray

    @property
    def num_bytes(self) -> int:
        """Bytes of the pixels."""
        return self.images.nbytes

    def read(self, i: int) -> Row:
        """Returns the row of an image."""
        image = self.images[i]
        feature = Feature("raw", image.dtype.name, image.shape)
        stored = image.astype(image.dtype.newbyteorder("<"), copy=False)
        return Row({"image": stored.tobytes()}, {"image": feature})


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
      target: what is predicted for each example, if it is not one class; `labels` is ("target",)
        then.
      kind: kind of data with its metadata, such as `text.parallel_kind.Text`; None for images with
        classes and for records. Of annotated images, its splits have the annotations of no image
        that is there, and the writer adds those of the rows.
      left_out: rows and annotations that are not examples. `convert.read` adds the files below
        the source that are not used.
      left_out_paths: `{path: reason}` of unused files, for reasons that the source knows.
      held_out: names of the splits that `convert.read` has held out of "train".
      path: folder or file that it was read from, which `convert.read` sets; "" if there is none.
      encoder: module of `input_fns` whose `encode` turns the text of the final splits into rows of
        tokens; "" if they have rows.
    """

    name: str
    class_names: tuple[str, ...]
    splits: dict[str, RawSplit]
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)
    labels: tuple[str, ...] = ()
    properties: dict[str, Any] = dataclasses.field(default_factory=dict)
    target: Target | None = None
    kind: Kind | None = None
    left_out: LeftOut = dataclasses.field(default_factory=LeftOut)
    left_out_paths: dict[str, str] = dataclasses.field(default_factory=dict)
    held_out: frozenset[str] = frozenset()
    path: str = ""
    encoder: str = ""


def content_name(name: str, content: bytes) -> str:
    """Returns a file name with the checksum of the content, such as "a-0123abcd.model"."""
    stem, extension = os.path.splitext(name)
    return f"{stem}-{zlib.crc32(content):08x}{extension}"
