"""Copies shards without their corrupted records, for --skip_bad_records."""

from __future__ import annotations

import dataclasses
import functools
import os
import zlib

import tensorflow as tf

from common import files
from input_fns import DataError
from input_fns.core import framing, inspection, shards
from input_fns.dataset_info import FILE_NAME, DatasetInfo, ShardInfo

_NAMED = 5


def without_bad_records(
    data: DatasetInfo, split_name: str, folder: str, max_skipped: int
) -> tuple[DatasetInfo, int]:
    """Reads a whole split and copies shards with corrupted records, without these.

    After a corrupted length or a truncated end, the rest of the shard is lost. Prints the skipped
    records.

    Args:
      data: the data set.
      split_name: name of the split.
      folder: folder of the copies, local or gs://.
      max_skipped: maximum number of missing records.

    Returns:
      The data set with the repaired split, and its number of missing records.

    Raises:
      DataError: more records are missing, or all.
    """
    split = data.split(split_name)
    kept, problems, missing = [], [], 0
    for shard in split.shards:
        if inspection.is_whole(data, shard):
            kept.append((shard, None))
            continue
        records = list(shards.walk(data, data.path(shard)))
        good = [record.data for record in records if not record.problem]
        problems += [record.problem for record in records if record.problem]
        missing += max(0, shard.num_examples - len(good))
        _check_content(data, shard, good)
        if good:
            kept.append((shard, good))
    if missing > max_skipped or not kept:
        listed = "; ".join(problems[:_NAMED]) + ("; ..." if problems[_NAMED:] else "")
        raise DataError(
            f"{missing} of {split.num_examples} records of split '{split_name}' in "
            f"{data.data_dir} cannot be read, and --skip_bad_records={max_skipped}: {listed}"
        )
    if [shard for shard, good in kept if good is None] == list(split.shards):
        return data, 0
    for problem in problems:
        print(f"skipped: {problem}")
    print(f"skipped {missing} of {split.num_examples} records of split '{split_name}'", flush=True)
    new_shards = [shard if good is None else _copy(shard, good, folder) for shard, good in kept]
    repaired = dataclasses.replace(split, shards=tuple(new_shards), label_histogram=())
    return dataclasses.replace(data, splits={**data.splits, split_name: repaired}), missing


def _check_content(data, shard, good):
    """Raises DataError if a shard without corrupted records has other records than written."""
    crc32 = functools.reduce(lambda crc32, record: zlib.crc32(record, crc32), good, 0)
    if len(good) == shard.num_examples and shard.crc32 not in (0, crc32):
        raise DataError(
            f"{shard.name} in {data.data_dir} is not the shard that {FILE_NAME} names: the crc32 "
            f"of its records is {crc32:08x} instead of {shard.crc32:08x}"
        )


def _copy(shard, records, folder):
    path = os.path.join(folder, shard.name)
    # All processes of a cluster may write this file.
    partial = files.partial_name(path)
    tf.io.gfile.makedirs(folder)
    offsets, num_bytes = [], 0
    with tf.io.TFRecordWriter(partial) as file:
        for record in records:
            file.write(record)
            offsets.append(num_bytes)
            num_bytes += len(record) + framing.FRAMING_BYTES
    tf.io.gfile.rename(partial, path, overwrite=True)
    index = framing.index(offsets)
    return ShardInfo(shard.name, num_bytes, len(records), path=path, offsets=index)
