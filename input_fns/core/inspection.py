"""Reads every record of a data set and reports its contents and its corrupted records."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import re
import zlib
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from common import folders
from common.names import counted
from input_fns import DataError
from input_fns.core import framing, records, shards
from input_fns.dataset_info import FILE_NAME, DatasetInfo, Feature, ShardInfo, find_file_problem
from input_fns.image import images

_BATCH = 1024
_CRC32_IN_NAME = re.compile(r"-([0-9a-f]{8})\.\w+$")
# Problems to report per shard.
_MAX_PROBLEMS = 10
# Limits of the check when training starts, about 50 ms.
_CHECKED_BYTES, _CHECKED_RECORDS = 16 * 2**20, 30_000


@dataclasses.dataclass(frozen=True)
class Report:
    """Contents of one split.

    Attributes:
      lines: counts and sizes to print.
      problems: one line each, with the shard and the byte offset if known.
    """

    lines: list[str]
    problems: list[str]


def describe_feature(feature: Feature) -> str:
    """Returns a description such as "uint8 32x32x3, raw"."""
    shape = "x".join("any" if size is None else str(size) for size in feature.shape)
    return ", ".join(filter(None, [f"{feature.dtype} {shape}".strip(), feature.encoding]))


def inspect(data: DatasetInfo, split_name: str) -> Report:
    """Reads every record of a split: checksums, features, sizes, labels; decodes every image."""
    split, stored = data.splits[split_name], data.stored_in(split_name)
    counts = np.zeros(stored.num_classes, int)
    statistics = data.kind.statistics(stored)
    problems, examples = [], 0
    for shard in split.shards:
        path, of_file = data.path(shard), find_file_problem(data, shard)
        if of_file:
            problems.append(of_file)
        if not folders.is_file(path):
            continue
        found, number, histogram = _read(stored, shard, statistics)
        problems += found
        examples, counts = examples + number, counts + histogram
        if not found and number != shard.num_examples:
            problems.append(f"{shard.name} holds {number} examples instead of {shard.num_examples}")
    if not problems and counts.tolist() != list(split.label_histogram):
        problems.append(
            f"split '{split_name}' has the labels {counts.tolist()}, "
            f"not {list(split.label_histogram)} as dataset.json says"
        )
    lines = _lines(stored, split_name, examples, counts)
    if statistics:
        lines += statistics.lines()
        problems += [] if problems else statistics.problems(split_name)
    if not problems:
        lines += data.kind.first_example(stored, split_name)
    return Report(lines, problems)


def _lines(data, split_name, examples, counts):
    split = data.splits[split_name]
    sizes = sorted(shard.num_bytes / 1e6 for shard in split.shards) or [0.0]
    lines = [
        f"{split_name}: {counted(examples, 'example')} in {counted(len(split.shards), 'shard')} of "
        f"{sizes[0]:.1f} to {sizes[-1]:.1f} MB, {sum(sizes):.1f} MB in all"
    ]
    lines += [f"  {line}" for line in data.kind.split_lines(data, split_name, examples)]
    if not split.has_labels:
        lines.append("  no labels: for prediction only")
    if split.broken:
        lines.append(f"  skipped when it was written: {len(split.broken)}")
    width = max(map(len, data.class_names), default=0)
    for name, count in zip(data.class_names, counts):
        bar = "#" * round(40 * count / max(1, counts.max()))
        lines.append(f"  {name:{width}} {count:9,d} {bar}")
    return lines


def problems(data: DatasetInfo, split_names: Iterable[str]) -> Iterator[str]:
    """Yields one line for each corrupted record of the splits, up to ten per shard."""
    if not data.data_dir:
        return  # no files
    for name in split_names:
        for shard in data.split(name).shards:
            yield from _read(data.stored_in(name), shard)[0]


def check_contents(data: DatasetInfo, split_names: Iterable[str]) -> None:
    """Checks the vocabulary, and the checksums of the first local shards of the splits.

    At most `_CHECKED_BYTES` and `_CHECKED_RECORDS` of shards, and `_CHECKED_BYTES` of a vocabulary
    or another file: a larger one only has to exist.

    Raises:
      DataError: a file does not match dataset.json.
    """
    for problem in file_problems(data, split_names, _CHECKED_BYTES):
        raise DataError(f"{problem}. Prepare the data set again with prepare_data.py --overwrite")
    num_bytes, num_records = _CHECKED_BYTES, _CHECKED_RECORDS
    named = ((name, shard) for name in split_names for shard in data.split(name).shards)
    for split_name, shard in named:
        path = data.path(shard)
        is_large = shard.num_bytes > num_bytes or shard.num_examples > num_records
        if is_large or folders.is_remote(path):
            continue
        num_bytes, num_records = num_bytes - shard.num_bytes, num_records - shard.num_examples
        if not _is_as_written(shard, path):
            problem = next(
                iter(_read(data.stored_in(split_name), shard)[0]), f"{shard.name} has changed"
            )
            raise DataError(f"{problem} (prepare_data.py --mode=inspect lists all)")


def file_problems(
    data: DatasetInfo, split_names: Iterable[str], max_bytes: int | None = None
) -> Iterator[str]:
    """Yields one line for each wrong file that is not a shard, such as a vocabulary.

    Args:
      data: the data set.
      split_names: splits whose files are checked.
      max_bytes: contents of larger files are not read; None reads all.
    """
    for name in filter(None, data.kind.side_files(data, split_names)):
        path = os.path.join(data.data_dir, name)
        if not folders.is_file(path):
            yield f"{path} is missing, or not a file"
            continue
        if max_bytes is not None and folders.num_bytes(path) > max_bytes:
            continue
        with tf.io.gfile.GFile(path, "rb") as file:
            content = file.read()
        expected = _CRC32_IN_NAME.search(name)
        if expected and zlib.crc32(content) != int(expected[1], 16):
            yield f"{path} has changed: its checksum is {zlib.crc32(content):08x}"
            continue
        num_lines = content.count(b"\n") + (not content.endswith(b"\n"))
        for problem in data.kind.file_problems(data, name, len(content), num_lines):
            yield f"{path} {problem}"


def _is_as_written(shard, path):
    try:
        count, crc32, offsets = framing.scan(path, shard.stride)
    except framing.FramingError:
        return False
    is_indexed = shard.offsets in ((), offsets)
    return count == shard.num_examples and shard.crc32 in (0, crc32) and is_indexed


def is_whole(data: DatasetInfo, shard: ShardInfo) -> bool:
    """Whether a shard is unchanged and every record in it is valid."""
    if find_file_problem(data, shard):
        return False
    path = data.path(shard)
    try:
        return _is_as_written(shard, path) and _count(data, path)[0] == shard.num_examples
    except (tf.errors.OpError, ValueError):
        return False


def _read(data, shard, statistics=None):
    """Returns up to ten lines for corrupted records; number of examples and class histogram."""
    path, nothing = data.path(shard), (0, np.zeros(data.num_classes, int))
    if not folders.is_file(path):
        return [find_file_problem(data, shard)], *nothing
    try:
        _, crc32, offsets = framing.scan(path, shard.stride)
        counts = _count(data, path, statistics)
    except (tf.errors.OpError, ValueError) as error:
        found = (record.problem for record in shards.walk(data, path) if record.problem)
        lines = list(itertools.islice(found, _MAX_PROBLEMS))
        reason = " ".join(str(error).partition("[[")[0].split())  # TensorFlow's have many lines
        return lines or [f"{shard.name} cannot be read: {reason}"], *nothing
    if counts[0] == shard.num_examples and shard.crc32 not in (0, crc32):
        other = f"{shard.name} holds other records than {FILE_NAME} names: their crc32 is "
        return [f"{other}{crc32:08x} instead of {shard.crc32:08x}"], *nothing
    if counts[0] == shard.num_examples and shard.offsets not in ((), offsets):
        return [f"{shard.name} has other offsets of records than {FILE_NAME} says"], *nothing
    return [], *counts


def _count(data, path, statistics=None):
    """Reads a shard in batches and returns its counts; raises an error if a record is invalid."""
    statistics = statistics or data.kind.statistics(data)
    parse = images.stored_fn(data.features, bool(data.num_classes), data.num_classes)

    def facts(serialized):
        stored, labels = parse(serialized)
        sizes = {name: tf.strings.length(value) for name, value in stored.items()}
        # Decode images to find corrupted ones; fetch one number per image.
        pixels = [
            tf.map_fn(
                functools.partial(_brightest, feature=feature),
                stored[name],
                fn_output_signature=tf.int32,
            )
            for name, feature in data.features.items()
            if feature.is_image_file and not getattr(statistics, "decodes_images", False)
        ]
        pixels += [_largest_id(stored[name], data, name) for name in data.limits]
        more = statistics.facts(stored) if statistics else {}
        return sizes, labels if labels is not None else tf.zeros([0], tf.int32), pixels, more

    def batches():
        is_encoded = any(feature.is_image_file for feature in data.features.values())
        dataset = tf.data.TFRecordDataset(path).batch(64 if is_encoded else _BATCH)
        return records.parallel_map(dataset, facts)

    examples, histogram = 0, np.zeros(data.num_classes, int)
    for sizes, labels, _, more in records.iterate(batches):
        for name, feature in data.features.items():
            if not (feature.is_image_file or feature.fits(sizes[name]).all()):
                raise ValueError(name)
        if statistics:
            statistics.add(more)
        if len(labels):
            histogram += np.bincount(labels, minlength=len(histogram))
        examples += len(next(iter(sizes.values())))
    return examples, histogram


def _largest_id(stored, data, name):
    ids = images.decode_raw(stored, data.features[name])
    lowest, limit = data.limits[name]
    return tf.cast(tf.reduce_max(images.checked(ids, limit, name, lowest)), tf.int32)


def _brightest(encoded, feature):
    # A function of the pixels, or TensorFlow would not decode them.
    return tf.cast(tf.reduce_max(images.decode(encoded, feature)), tf.int32)
