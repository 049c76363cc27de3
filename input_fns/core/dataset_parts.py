"""Metadata that data sets of all kinds have: features, shards, splits, what is left out."""

from __future__ import annotations

import dataclasses
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from common.names import counted, is_line, printable
from input_fns import DataError
from input_fns.core.json_fields import (
    array,
    boolean,
    field,
    file_name,
    integer,
    integer_in,
    mapping,
    nested,
    one_of,
    strings,
)

DTYPES = (
    *("uint8", "uint16", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64", "bool"),
)
MAX_EXAMPLE_BYTES = 2**31 - 1  # limit of a tf.train.Example
_MAX_RANK = 8
_RECORD_BYTES = 16  # framing of a record
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


def listed(counts: Mapping[str, int], verb: str = "left out") -> str:
    """Returns "; left out: 3 empty texts, 1 ..." of `{reason: number}`; "" without any."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in counts.items())
    return f"; {verb}: {reasons}" if reasons else ""


def _size(value: Any, where: str) -> int | None:
    return None if value is None else integer(value, where, 1, MAX_EXAMPLE_BYTES)


def _offsets(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(offset) is int for offset in value):
        raise DataError(f"{where} must be a list of integers")
    return tuple(value)


def _broken(value: Any, where: str) -> tuple[str, str]:
    name_and_reason = strings(value, where)
    if len(name_and_reason) != 2:
        raise DataError(f"{where} must be a name and a reason")
    return name_and_reason


@dataclasses.dataclass(frozen=True)
class Feature:
    """A stored feature: one bytes value per example.

    Attributes:
      encoding: "raw", little-endian numbers; "unpadded", the same without zeros that pad them at
        the end; "jpeg" or "png", a file; "image", files of both kinds.
      dtype: dtype of the decoded tensor.
      shape: shape of one decoded example; None for sizes that differ between examples.
    """

    encoding: str = field(one_of(("raw", "unpadded", "jpeg", "png", "image")))
    dtype: str = field(one_of(DTYPES))
    shape: tuple[int | None, ...] = field(array(_size))

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

    def fits(self, num_bytes: Any) -> Any:
        """Whether raw or unpadded numbers may have a size, or each of an array of sizes."""
        if self.encoding == "raw":
            return num_bytes == self.num_bytes
        return (num_bytes <= self.num_bytes) & (num_bytes % np.dtype(self.dtype).itemsize == 0)

    def to_array(self, stored: bytes) -> np.ndarray:
        """Returns an array from its raw or unpadded numbers."""
        values = np.frombuffer(stored, np.dtype(self.dtype).newbyteorder("<"))
        if self.encoding == "unpadded":
            values = np.pad(values, (0, math.prod(self.shape) - len(values)))
        return values.reshape(self.shape)

    def validate(self, where: str) -> None:
        """Raises DataError if its fields, of `where` in dataset.json, contradict each other."""
        for i, size in enumerate(self.shape):
            if not self.is_image_file:
                integer(size, f"{where}.shape[{i}]", 1, MAX_EXAMPLE_BYTES)
        if self.encoding == "unpadded" and self.dtype == "bool":  # TensorFlow has no op for it
            raise DataError(f"{where} is bool, which cannot be unpadded")
        is_image = self.dtype == "uint8" and len(self.shape) == 3 and self.shape[-1] in (1, 3)
        if self.is_image_file and not is_image:
            raise DataError(
                f"{where} is not uint8 [height, width, 1 or 3], as a {self.encoding} file is"
            )
        is_large = self.is_static and self.num_bytes > MAX_EXAMPLE_BYTES
        if is_large or len(self.shape) > _MAX_RANK:
            raise DataError(f"{where}.shape is too large")


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

    name: str = field(file_name)
    num_bytes: int = field(integer)
    num_examples: int = field(integer)
    crc32: int = field(integer_in(0, 2**32 - 1), optional=True, default=0)
    path: str = ""
    offsets: tuple[int, ...] = field(_offsets, omitted=True, default=(), repr=False)

    @property
    def stride(self) -> int:
        """Number of records between two offsets of the index."""
        return max(1, -(-self.num_examples // max(1, len(self.offsets))))

    @property
    def is_named_by_content(self) -> bool:
        """Whether the checksum in the name, if any, is that of the records."""
        found = _CRC32_IN_NAME.search(self.name)
        return not found or self.crc32 in (0, int(found[1], 16))

    def validate(self, where: str) -> None:
        """Raises DataError if the size or the index cannot be that of its records."""
        if self.num_examples * _RECORD_BYTES > self.num_bytes:
            raise DataError(
                f"{where} has {self.num_examples} examples in {self.num_bytes} bytes, which have "
                "no room for so many"
            )
        stride, bounds, problem = self.stride, (*self.offsets, self.num_bytes), ""
        if self.offsets and -(-self.num_examples // stride) != len(self.offsets):
            problem = f"cannot divide {self.num_examples} examples"
        elif self.offsets and bounds[0]:
            problem = f"begins with {bounds[0]} instead of 0"
        for i, (offset, following) in enumerate(zip(bounds, bounds[1:])):
            num_records = min(stride, self.num_examples - i * stride)
            if not problem and following - offset < num_records * _RECORD_BYTES:
                problem = f"has {num_records} examples from byte {offset} to {following}"
        if problem:
            raise DataError(
                f"{where}.offsets, with {len(self.offsets)} numbers, {problem}. Without this field "
                "the shard is read from its first byte"
            )


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

    label_histogram: tuple[int, ...] = field(array(integer))
    shards: tuple[ShardInfo, ...] = field(array(nested(ShardInfo)))
    broken: tuple[tuple[str, str], ...] = field(array(_broken), default=())
    has_labels: bool = field(boolean, omitted=True, default=True)

    @property
    def num_examples(self) -> int:
        """Examples of all shards."""
        return sum(shard.num_examples for shard in self.shards)

    @property
    def num_bytes(self) -> int:
        """Bytes of all shards."""
        return sum(shard.num_bytes for shard in self.shards)

    @property
    def identity(self) -> str:
        """Number of examples, and a checksum of all records in order unless one is unknown."""
        count, checksums = counted(self.num_examples, "example"), [s.crc32 for s in self.shards]
        if not all(checksums):
            return count
        return f"{count} (CRC-32 {zlib.crc32(repr(checksums).encode()):08x})"

    @property
    def record_bytes(self) -> int:
        """Mean size of a record, at least 1."""
        return max(1, self.num_bytes // max(1, self.num_examples))


def _counts(value: Any, where: str) -> dict[str, int]:
    return {reason: integer(count, where) for reason, count in mapping(value, where).items()}


def names_by_reason(value: Any, where: str) -> dict[str, list[str]]:
    """Returns `value`, an object of lists of strings."""
    return {reason: list(strings(shown, where)) for reason, shown in mapping(value, where).items()}


@dataclasses.dataclass
class LeftOut:
    """Files, rows and annotations of the source of a data set that are not examples.

    Attributes:
      counts: number of files, rows or annotations, by reason.
      names: first names of each reason: paths below the source, or places in a file.
    """

    counts: dict[str, int] = field(_counts, default_factory=dict)
    names: dict[str, list[str]] = field(names_by_reason, default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def validate(self, where: str) -> None:
        """Raises DataError if the reasons differ, or a reason or a name is not a line."""
        lines = (line for values in self.names.values() for line in (*self.counts, *values))
        if self.names.keys() != self.counts.keys() or not all(map(is_line, lines)):
            raise DataError(f"{where} must have the counts and the first names of each reason")

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
