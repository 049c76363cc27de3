"""Cuts the records of a split into chunks: consecutive records of one shard, read independently.

`ShardInfo.offsets`, the index of a shard, has the byte offsets of every `stride`-th record. A chunk
begins at one of them, so that a host reads its records without reading those of other hosts. A
shard without an index, as earlier versions wrote, is read from its first byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from input_fns.core.dataset_parts import ShardInfo

ALL = -1  # records to take: all up to the end of the file


class Chunk(NamedTuple):
    """Consecutive records of one shard.

    Attributes:
      shard: index of the shard in the split.
      offset: byte offset to read from.
      end: byte offset to read up to; `ALL` if unknown.
      skip: records to skip after `offset`.
      take: number of records, or `ALL`.
    """

    shard: int
    offset: int
    end: int
    skip: int
    take: int


def of_files(files: Sequence[str]) -> list[Chunk]:
    """Returns one chunk for each file, of unknown sizes."""
    return [Chunk(i, 0, ALL, 0, ALL) for i in range(len(files))]


def host_range(num_examples: int, host: int, num_hosts: int) -> tuple[int, int]:
    """Returns the first record of a host's share of a split, and the first after it."""
    return num_examples * host // num_hosts, num_examples * (host + 1) // num_hosts


def cut(
    shards: Sequence[ShardInfo], max_bytes: int, max_records: int, start: int = 0, stop: int = -1
) -> list[Chunk]:
    """Returns the chunks of records [start, stop) of a split, in order.

    Args:
      shards: all shards of the split.
      max_bytes: about the largest size of a chunk. Records between two offsets of an index, and a
        shard without an index, are one chunk of any size.
      max_records: the same in records.
      start: number of the first record in the split.
      stop: number of the record after the last one; -1 for all.
    """
    chunks, first = [], 0
    for i, shard in enumerate(shards):
        last = first + shard.num_examples
        a, b = max(start, first), last if stop < 0 else min(stop, last)
        if a < b:
            chunks += _cut_shard(i, shard, a - first, b - first, max_bytes, max_records)
        first = last
    return chunks


def _cut_shard(number, shard, start, stop, max_bytes, max_records) -> Iterator[Chunk]:
    """Yields chunks of equally many blocks: the records between two offsets of the index."""
    offsets = (*(shard.offsets or (0,)), shard.num_bytes)
    stride = shard.stride
    first, last = start // stride, -(-stop // stride)  # blocks
    num_bytes, num_records = offsets[last] - offsets[first], stop - start
    count = max(1, -(-num_bytes // max_bytes), -(-num_records // max_records))
    count = min(count, last - first)
    bounds = [first + (last - first) * i // count for i in range(count + 1)]
    for begin, end in zip(bounds, bounds[1:]):
        a, b = max(start, begin * stride), min(stop, end * stride)
        yield Chunk(number, offsets[begin], offsets[end], a - begin * stride, b - a)
