"""What a converter is asked for, and what it hands to the writer: splits of rows to be stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from common.names import is_plain_name
from input_fns import DataError
from input_fns.dataset_info import Feature, Text

# How folders, files and columns call a split -> how this package does.
_SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
}


def is_split(name: str) -> bool:
    """Whether a folder of this name is known to be a split."""
    return name in _SPLIT_NAMES


def split_names(found: Iterable[str], where: str) -> dict[str, str]:
    """Returns `{what this package calls a split: what its source does}`.

    Args:
      found: the names in the source.
      where: they were found, for errors.

    Raises:
      DataError: two of them mean the same split, or one is empty or no part of a file's name.
    """
    names: dict[str, str] = {}
    for name in found:
        if not name:
            raise DataError(f"{where}: an example has no split")
        if not is_plain_name(name):
            raise DataError(
                f"{where}: {name!a} cannot be a split, which becomes a part of the names of files"
            )
        ours = _SPLIT_NAMES.get(name, name)
        if ours in names:
            raise DataError(f"{where}: '{names[ours]}' and '{name}' both mean the split '{ours}'")
        names[ours] = name
    return names


@dataclasses.dataclass(frozen=True)
class Options:
    """The flags of prepare_data.py of the same names."""

    dataset: str
    name: str = ""
    source: str = ""
    image_size: tuple[int, int] | None = None
    channels: int = 3
    class_names: tuple[str, ...] = ()
    csv: str = ""
    image_column: str = ""
    label_columns: tuple[str, ...] = ()
    group_column: str = ""
    split_column: str = ""
    languages: tuple[str, ...] = ()
    vocabulary: str = ""
    vocab_size: int = 8192
    subwords: str = "unigram"
    max_length: int = 128
    validation_fraction: float | None = None
    test_fraction: float | None = None
    seed: int = 0
    workers: int = 0


@dataclasses.dataclass(frozen=True)
class Row:
    """An example as it is stored, without its label.

    Attributes:
      values: `{feature: bytes}`.
      features: what each of them is; a shape may differ between the rows of a split.
      name: of the file that it came from, if it had one of its own.
    """

    values: dict[str, bytes]
    features: dict[str, Feature]
    name: str = ""


@dataclasses.dataclass(frozen=True)
class Broken:
    """An example that cannot be stored."""

    name: str
    reason: str


class RawSplit(Protocol):
    """A split in its source's order. Iterating yields a `Row` or a `Broken` for each example.

    Attributes:
      labels: int64 `[size]`, or None where examples have no class.
      num_bytes: what the rows will take, about.
      groups: `[size]`, equal where examples must stay in one split, or None.
    """

    labels: np.ndarray | None
    num_bytes: int
    groups: np.ndarray | None

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Row | Broken]: ...

    def take(self, indices: Sequence[int]) -> RawSplit:
        """Returns the split of these examples, in the order of the indices."""


@dataclasses.dataclass(frozen=True)
class RawArrays:
    """A split in memory: images `[size, height, width, channels]` and int64 labels `[size]`."""

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
      name: of the data set.
      class_names: in the order of the labels.
      splits: what is written.
      text: what is known of text, else None.
      files: that lie beside the shards, `{name: content}`.
    """

    name: str
    class_names: tuple[str, ...]
    splits: dict[str, RawSplit]
    text: Text | None = None
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)
