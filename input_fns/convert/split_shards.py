"""Cuts a split into tasks that write its shards, and merges their results."""

from __future__ import annotations

import os
import pickle
import secrets
import time
from collections.abc import Iterator

import numpy as np

from input_fns import DataError, dataset_info
from input_fns.convert import finished_shards
from input_fns.convert.fingerprint import Fingerprints
from input_fns.convert.shard_tasks import CHANGED, InOrder, ShardResult, ShardTask, merged_features
from input_fns.convert.source import RawDataset, RawSplit, has_labels
from input_fns.image.annotated_kind import Annotations
from input_fns.image.sources import decoded_images
from input_fns.image.sources.boxes import Counts

# Shards of 10-100 MB, 10-100 of them, are what a TPU's hosts read best (Cloud TPU performance
# guide). A split too small for that gets fewer shards, not smaller ones; a larger one more.
_SHARD_BYTES = 10 * 2**20
_LARGEST_SHARD_BYTES = 100 * 2**20
_MAX_SHARDS = 100
# Of the key of a task; another one if the same task writes other records or another result.
_FORMAT = 3
# Per example: keys and lengths of the Example, length and checksums of the record.
_OVERHEAD_BYTES = 64


class SplitShards:
    """The tasks of a split, and the metadata that their results add up to."""

    def __init__(
        self,
        raw: RawDataset,
        name: str,
        data_dir: str,
        num_shards: int,
        fingerprints: Fingerprints,
    ):
        """Takes the data set, the name of the split, and the arguments of `writer.write`."""
        self._fingerprints, self._num_reused, self._end = fingerprints, 0, 0
        self.name, self._raw, self._split = name, raw, raw.splits[name]
        self._data_dir, self.size = data_dir, len(self._split)
        num_bytes = self._split.num_bytes + self.size * _OVERHEAD_BYTES
        self.num_shards = min(num_shards or choose_num_shards(num_bytes), self.size)
        self.num_done = 0
        self._histogram = np.zeros(len(raw.class_names), np.int64)
        self._broken, self._stated_range, self._started = [], None, 0.0
        self.shards: list[ShardResult] = []  # those with examples
        self.counts = None
        if isinstance(raw.kind, Annotations):
            before = raw.kind.splits.get(name)
            self.counts = Counts(raw.kind, before.left_out if before else {})
        self.features = {}
        self._in_order = None
        if getattr(type(self._split), "read", RawSplit.read) is RawSplit.read:
            self._in_order = InOrder(iter(self._split), self.size, self._split.labels)

    @property
    def in_workers(self) -> bool:
        """Whether worker processes may write the shards."""
        return self._in_order is None and self._split.in_workers

    def tasks(self) -> Iterator[ShardTask]:
        """Yields the task of each shard."""
        self._started = time.monotonic()
        bounds = np.linspace(0, self.size, self.num_shards + 1).astype(int).tolist()
        for number, (begin, end) in enumerate(zip(bounds, bounds[1:])):
            part = (self._in_order or self._split).part(begin, end)
            key, stem = self._key(part, begin, end), f"{self.name}-{number:05d}"
            partial = finished_shards.shard_name(stem, key or secrets.token_hex(4))
            yield ShardTask(
                self._raw.name,
                self.name,
                begin,
                end - begin,
                self.size,
                part,
                os.path.join(self._data_dir, partial),
                len(self._histogram),
                self.counts and Counts(self._raw.kind),
                key,
                self._raw.path,
            )

    def _key(self, part, begin, end):
        """Returns the fingerprint of a task; "" if it cannot have one."""
        if self._in_order:
            return ""
        classes, kind = len(self._histogram), self.counts and self._raw.kind
        try:
            split = self._fingerprints.of_split(part)
            return self._fingerprints.of(
                _FORMAT, self._raw.name, self.name, begin, end, self.size, classes, kind, split
            )
        except (TypeError, pickle.PicklingError, RecursionError):  # one cannot be pickled
            return ""

    def add(self, result: ShardResult) -> None:
        """Adds the next shard; one without valid examples leaves no file.

        Raises:
          DataError: an example is invalid, or does not fit to others.
        """
        for stated in result.stated_ranges:
            self._stated_range = self._stated_range or stated
            decoded_images.require_one_range(self._stated_range, stated)
        if result.error:
            raise result.error
        self._broken += result.broken
        self._histogram += result.histogram
        if self.counts:
            self.counts.update(result.counts)
        if result.num_examples:
            self.shards.append(result)
            self.features = merged_features([self.features or result.features, result.features])
        self.num_done += 1
        if result.is_reused:
            self._num_reused += result.end - self._end
        self._end = result.end

    def progress(self) -> str:
        """Returns a line about the shards that were added."""
        end = self._end
        line = f"{self.name}: shard {self.num_done}/{self.num_shards}, {end}/{self.size} examples"
        if end == self._num_reused:
            return f"{line}, all of an earlier run"
        rate = (end - self._num_reused) / (time.monotonic() - self._started)
        reused = f" ({self._num_reused} of an earlier run)" if self._num_reused else ""
        return f"{line}{reused}, {rate:,.0f}/s, {(self.size - end) / rate:.0f} s to go"

    def finish(self) -> None:
        """Raises `DataError` if the split has other examples than it says, or none is valid."""
        if self._in_order and next(self._in_order.rows, None) is not None:
            raise DataError(
                f"split '{self.name}' of {self._raw.name} yields more examples than the "
                f"{self.size} that it has. {CHANGED}"
            )
        if not self.shards:
            name, reason = self._broken[0]
            raise DataError(
                f"split '{self.name}' of {self._raw.name}: all of its {len(self._broken)} examples "
                f"are skipped; the first is {name}: {reason}"
            )

    @property
    def names(self) -> list[str]:
        """Final names of the shards."""
        return [
            f"{self.name}-{i:05d}-of-{len(self.shards):05d}-{shard.crc32:08x}.tfrecord"
            for i, shard in enumerate(self.shards)
        ]

    def as_split(self) -> dataset_info.SplitInfo:
        """Returns the metadata of the split."""
        infos = tuple(
            dataset_info.ShardInfo(
                name, shard.num_bytes, shard.num_examples, shard.crc32, offsets=shard.offsets
            )
            for name, shard in zip(self.names, self.shards)
        )
        is_labelled = has_labels(self._split)
        histogram = tuple(self._histogram.tolist()) if is_labelled else ()
        return dataset_info.SplitInfo(histogram, infos, tuple(self._broken), is_labelled)


def choose_num_shards(num_bytes: int) -> int:
    """Returns the number of shards of a split of this size."""
    few = min(num_bytes // _SHARD_BYTES, _MAX_SHARDS)
    return int(max(1, few, -(-num_bytes // _LARGEST_SHARD_BYTES)))
