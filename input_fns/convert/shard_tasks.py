"""Writes one shard: a task that can be pickled, and its result. Imports no TensorFlow.

Names, order and contents of the shards are functions of the tasks, not of who runs them.
"""

from __future__ import annotations

import array
import dataclasses
import functools
import itertools
import zlib
from collections.abc import Iterator

import numpy as np

from common import files
from input_fns import DataError
from input_fns.convert import files as source_files
from input_fns.convert import finished_shards
from input_fns.convert.source import Broken, RawSplit, Row, Rows
from input_fns.core import framing
from input_fns.core.target import FEATURE
from input_fns.dataset_info import Feature
from input_fns.image.sources.boxes import Counts

CHANGED = "A file of --source may have changed while it was read: prepare the data again"


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """Examples of a split that become one shard.

    Attributes:
      dataset: name of the data set, for errors.
      split: name of the split.
      begin: number of the first example in the split.
      size: number of examples.
      split_size: number of examples of the split.
      examples: the examples.
      path: temporary path of the shard, local or gs://.
      num_classes: number of classes, 0 without labels.
      counts: counts of boxes or pixels without any example, or None.
      key: fingerprint of the task, which is that of the shard unless a file of the source changes;
        "" if a later run cannot use the shard.
      root: folder or file of the source, "" if there is none.
    """

    dataset: str
    split: str
    begin: int
    size: int
    split_size: int
    examples: RawSplit
    path: str
    num_classes: int
    counts: Counts | None = None
    key: str = ""
    root: str = ""

    @property
    def end(self) -> int:
        """Number of the example after the last one in the split."""
        return self.begin + self.size


@dataclasses.dataclass
class ShardResult:
    """Contents of a shard; results of a split are merged in the order of their tasks.

    Attributes:
      split: name of the split.
      end: see `ShardTask`.
      path: temporary path of the shard.
      num_bytes: size of the file.
      num_examples: number of records; 0 if the file is to be removed.
      crc32: checksum of the records.
      offsets: see `framing.index`.
      features: features of all examples; {} without any.
      histogram: examples of each class, int64 `[num_classes]`.
      broken: name and reason of examples that were left out.
      counts: counts of boxes or pixels, or None.
      stated_ranges: the first of `Row.stated_range` for each range; of invalid examples two.
      error: why the data set cannot be written, or None.
      is_reused: whether an earlier run has written it.
      changed_path: a file of the source that has changed since an earlier run wrote it, or None.
    """

    split: str
    end: int
    path: str
    num_bytes: int = 0
    num_examples: int = 0
    crc32: int = 0
    offsets: tuple[int, ...] = ()
    features: dict[str, Feature] = dataclasses.field(default_factory=dict)
    histogram: np.ndarray | None = None
    broken: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    counts: Counts | None = None
    stated_ranges: list[tuple[str, float, float]] = dataclasses.field(default_factory=list)
    error: DataError | None = None
    is_reused: bool = False
    changed_path: str | None = None


def run(task: ShardTask) -> ShardResult:
    """Writes the shard of a task, unless an earlier run has."""
    result = ShardResult(task.split, task.end, task.path, counts=task.counts)
    if task.key and finished_shards.load(task, result):
        return result
    result.histogram = np.zeros(task.num_classes, np.int64)
    try:
        # Atomically: some runners start a second attempt of a slow task.
        with source_files.recording() as opened, files.atomic_write(task.path, "wb") as file:
            _write(task, result, file)
        if task.key:
            finished_shards.save(task, result, opened)
    except DataError as error:
        result.error = error
    except OSError as error:
        error.filename = error.filename or task.path  # write(2) has no name
        raise
    return result


def _write(task, result, file):
    offsets = array.array("q")
    blocks = task.examples.blocks()
    pieces = _records(task, result) if blocks is None else _joined_records(task, result, blocks)
    for records, count in pieces:
        file.write(framing.frame(records, count))
        result.crc32 = zlib.crc32(records, result.crc32)
        size = len(records) // count + framing.FRAMING_BYTES
        offsets.extend(range(result.num_bytes, result.num_bytes + count * size, size))
        result.num_bytes += count * size
    result.num_examples = len(offsets)
    result.offsets = framing.index(offsets) if offsets else ()
    num_read = len(offsets) + len(result.broken)
    if num_read < task.size and len(result.stated_ranges) < 2:
        raise DataError(
            f"split '{task.split}' of {task.dataset} yields {task.begin + num_read} examples "
            f"instead of the {task.split_size} that it has. {CHANGED}"
        )


def _records(task, result):
    """Yields each serialized example and 1, and adds what it is to the result."""
    for number, row in enumerate(itertools.islice(task.examples, task.size)):
        if isinstance(row, Broken):
            result.broken.append((row.name, row.reason))
            continue
        if row.stated_range and row.stated_range[1:] not in (r[1:] for r in result.stated_ranges):
            result.stated_ranges.append(row.stated_range)
            if len(result.stated_ranges) > 1:  # the data set is invalid
                return
        if result.counts:
            result.counts.add(row)
        label = row.label
        if task.examples.labels is not None:
            label = int(task.examples.labels[number])
        if label is not None:
            _require_class(task, label)
            result.histogram[label] += 1
        if task.examples.targets is not None:
            row = _with_targets(row, task.examples.targets[number])
        _add_features(result, row.features)
        yield serialize(row, label), 1


def _with_targets(row, values):
    """Returns a `Row` with its target, float32 `[n]`, or `Rows` with those of all, `[rows, n]`."""
    stored = values.astype("<f4")
    feature = Feature("raw", "float32", values.shape[-1:])
    return dataclasses.replace(
        row,
        values={**row.values, FEATURE: stored.tobytes() if isinstance(row, Row) else stored},
        features={**row.features, FEATURE: feature},
    )


def _joined_records(task, result, blocks):
    """Yields the serialized examples of each block, joined, and their number; see `_records`."""
    targets, place = task.examples.targets, 0
    for rows in blocks:
        if targets is not None:
            rows = _with_targets(rows, targets[place : place + len(rows)])
            place += len(rows)
        _add_features(result, rows.features)
        if rows.labels is not None:
            for label in (int(rows.labels.min()), int(rows.labels.max())):
                _require_class(task, label)
            result.histogram += np.bincount(rows.labels, minlength=task.num_classes)
        if rows.labels is None or rows.labels.max() < 128:
            yield serialize_rows(rows), len(rows)
        else:
            yield from ((serialize(row, row.label), 1) for row in rows)


def _require_class(task, label):
    if not 0 <= label < task.num_classes:
        raise DataError(
            f"split '{task.split}' of {task.dataset} has the label {label}, outside the "
            f"{task.num_classes} classes"
        )


def _add_features(result, features):
    if result.features != features:
        result.features = merged_features([result.features or features, features])


def merged_features(features: list[dict[str, Feature]]) -> dict[str, Feature]:
    """Returns features that hold for all: image files may differ in size and format.

    Raises:
      DataError: they differ otherwise.
    """
    first, *others = features
    for other in others:
        for name in first.keys() | other.keys():
            a, b = first.get(name), other.get(name)
            if not (a and b) or (a != b and not (a.is_image_file and b.is_image_file)):
                raise DataError(f"the feature '{name}' differs between examples: {a} and {b}")
        first = {
            name: dataclasses.replace(
                feature,
                encoding=feature.encoding if feature.encoding == other[name].encoding else "image",
                shape=tuple(
                    a if a == b else None for a, b in zip(feature.shape, other[name].shape)
                ),
            )
            for name, feature in first.items()
        }
    return first


@dataclasses.dataclass(frozen=True)
class InOrder(RawSplit):
    """A split that is read once, from its start: of a user's class, or of a stream.

    Attributes:
      rows: iterator of the rows of all parts.
      size: number of examples of this part.
      labels: see `RawSplit`.
    """

    in_workers = False

    rows: Iterator[Row | Broken]
    size: int
    labels: np.ndarray | None

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Row | Broken]:
        return self.rows

    def part(self, begin: int, end: int) -> InOrder:
        """Returns the next part."""
        labels = None if self.labels is None else self.labels[begin:end]
        return InOrder(self.rows, end - begin, labels)


def serialize(row: Row, label: int | None) -> bytes:
    """Returns the tf.train.Example of a row.

    The bytes are those of `SerializeToString(deterministic=True)`: the checksum of the records is a
    part of the shard's name. https://protobuf.dev/programming-guides/encoding says how.
    """
    values = {name.encode(): value for name, value in row.values.items()}
    if row.name:
        values[b"name"] = row.name.encode()
    if label is not None:
        values[b"label"] = None
    # The values may be large: they are copied once.
    pieces = [b""]
    for name in sorted(values, key=_order):
        value = values[name]
        if value is None:
            packed = _field(1, _varint(label))  # int64s
            pieces.append(_field(1, _field(1, name) + _field(2, _field(3, packed))))
        else:
            pieces += _before_value(name, len(value)), value
    pieces[0] = _start(1, sum(map(len, pieces)))
    return b"".join(pieces)


def serialize_rows(rows: Rows) -> bytes:
    """Returns the joined tf.train.Examples of rows, as `serialize` makes each, of labels below 128.

    They differ in the bytes of the values and, below 128, in one byte of the label.
    """
    columns = {
        name.encode(): np.ascontiguousarray(array).view(np.uint8).reshape(len(rows), -1)
        for name, array in rows.values.items()
    }
    if rows.labels is not None:
        columns[b"label"] = rows.labels.astype(np.uint8)[:, None]
    one, other = (
        serialize(
            Row({name: fill * columns[name.encode()].shape[1] for name in rows.values}, {}),
            None if rows.labels is None else fill[0] & 127,
        )
        for fill in (b"\0", b"\xff")
    )
    found = np.frombuffer(one, np.uint8)
    differs = found != np.frombuffer(other, np.uint8)
    records = np.tile(found, (len(rows), 1))
    place = 0
    for name in sorted(columns, key=_order):
        place += int(np.argmax(differs[place:]))
        end = place + columns[name].shape[1]
        records[:, place:end] = columns[name]
        place = end
    return records.tobytes()


def _order(name):
    """Sorts the keys of a map as protobuf: "image" after "image_id"."""
    return name + b"\xff"


@functools.lru_cache(maxsize=1024)
def _before_value(name, size):
    """Returns the bytes of a feature before its value of `size` bytes."""
    before = _start(1, size)
    before = _start(1, len(before) + size) + before  # bytes
    before = _field(1, name) + _start(2, len(before) + size) + before
    return _start(1, len(before) + size) + before


def _field(number, content):
    return _start(number, len(content)) + content


def _start(number, size):
    return b"%c%b" % (number << 3 | 2, _varint(size))


def _varint(value):
    """Returns a whole number that is not negative."""
    if value < 128:
        return b"%c" % value
    encoded = bytearray()
    while value >= 128:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
