"""Writes a data set as TFRecord shards and, last of all, the `dataset.json` that completes it."""

from __future__ import annotations

import dataclasses
import os
import time
import zlib
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from input_fns import DataError, dataset
from input_fns.convert.source import Broken, RawDataset

# Shards of 10-100 MB, 10-100 of them, are what a TPU's hosts read best (Cloud TPU performance
# guide). A split too small for that gets fewer shards, not smaller ones; a larger one more.
_SHARD_BYTES = 10 * 2**20
_LARGEST_SHARD_BYTES = 100 * 2**20
_MAX_SHARDS = 100
# Around an example's features: the Example's keys and lengths, the record's length and checksums.
_OVERHEAD_BYTES = 64
_PARTIAL = ".partial"


def write(
    raw: RawDataset,
    data_dir: str,
    num_shards: int = 0,
    progress: Callable[[str], None] = lambda line: None,
    prepared_with: dict[str, Any] | None = None,
) -> dataset.Dataset:
    """Writes `raw` into `data_dir`, local or gs://, replacing what is there.

    Every shard is written under a temporary name. Only when all are whole does the old
    `dataset.json` go, the shards take their names, and the new `dataset.json` comes: a run that is
    stopped leaves the old data set or none, never a mixture.

    Args:
      raw: the data set.
      data_dir: made if missing.
      num_shards: of each split; 0 chooses from the bytes.
      progress: called with a line now and then.
      prepared_with: of the Dataset.

    Raises:
      DataError: a split is empty, or all broken, or a label is outside the classes.
    """
    for name, split in raw.splits.items():
        _check(raw, name, split)
    tf.io.gfile.makedirs(data_dir)
    written = [
        _SplitWriter(raw, name, data_dir, num_shards, progress).write() for name in raw.splits
    ]
    features = _merge([split.features for split in written])
    complete = dataset.Dataset(
        name=raw.name,
        data_dir=data_dir,
        features=features,
        class_names=raw.class_names,
        splits={split.name: split.as_split() for split in written},
        text=raw.text,
        prepared_with=prepared_with or {},
    )
    partials = {new: old for split in written for old, new in zip(split.partials, split.names)}
    for name, content in raw.files.items():
        partials[name] = os.path.join(data_dir, name + _PARTIAL)
        with tf.io.gfile.GFile(partials[name], "wb") as file:
            file.write(content)
    _commit(complete, partials)
    return complete


def _check(raw, name, split):
    if not len(split):
        raise DataError(f"split '{name}' of {raw.name} has no examples")
    if split.labels is None:
        return
    outside = np.flatnonzero((split.labels < 0) | (split.labels >= len(raw.class_names)))
    if len(outside):
        raise DataError(
            f"split '{name}' of {raw.name}: example {outside[0]} has label "
            f"{split.labels[outside[0]]}, outside the {len(raw.class_names)} classes "
            f"({len(outside)} such labels)"
        )


class _SplitWriter:
    """Writes the shards of one split under temporary names, and keeps what is known of them."""

    def __init__(self, raw: RawDataset, name, data_dir, num_shards, progress):
        self.name = name
        self._raw, self._split = raw, raw.splits[name]
        self._data_dir, self._progress = data_dir, progress
        size = len(self._split)
        num_bytes = self._split.num_bytes + size * _OVERHEAD_BYTES
        num_shards = min(num_shards or _choose_num_shards(num_bytes), size)
        self._bounds = np.linspace(0, size, num_shards + 1).astype(int)
        self._rows = iter(self._split)
        self._histogram = np.zeros(len(raw.class_names), int)
        self._broken = []
        self._contents = []  # of each shard, its number of examples and their checksum
        self.features = {}
        self.partials = []

    def write(self) -> _SplitWriter:
        """Writes every shard; a shard whose every example is broken leaves no file."""
        started = time.monotonic()
        for i, (begin, end) in enumerate(zip(self._bounds, self._bounds[1:])):
            path = os.path.join(self._data_dir, f"{self.name}-{i:05d}.tfrecord{_PARTIAL}")
            count = crc32 = 0
            with tf.io.TFRecordWriter(path) as writer:
                for record in self._records(begin, end):
                    writer.write(record)
                    count, crc32 = count + 1, zlib.crc32(record, crc32)
            if count:
                self.partials.append(path)
                self._contents.append((count, crc32))
            else:
                tf.io.gfile.remove(path)
            rate = end / (time.monotonic() - started)
            self._progress(
                f"{self.name}: shard {i + 1}/{len(self._bounds) - 1}, {end}/{len(self._split)} "
                f"examples, {rate:,.0f}/s, {(len(self._split) - end) / rate:.0f} s to go"
            )
        if not self._contents:
            name, reason = self._broken[0]
            raise DataError(
                f"split '{self.name}' of {self._raw.name}: all of its {len(self._broken)} examples "
                f"are broken; the first is {name}: {reason}"
            )
        return self

    def _records(self, begin, end):
        for number, row in zip(range(begin, end), self._rows):
            if isinstance(row, Broken):
                self._broken.append((row.name, row.reason))
                continue
            label = None
            if self._split.labels is not None:
                label = int(self._split.labels[number])
                self._histogram[label] += 1
            if self.features != row.features:
                self.features = _merge([self.features or row.features, row.features])
            yield _serialize(row, label)

    @property
    def names(self) -> list[str]:
        """Names of the shards when the data set is complete."""
        count = len(self.partials)
        return [f"{self.name}-{i:05d}-of-{count:05d}.tfrecord" for i in range(count)]

    def as_split(self) -> dataset.Split:
        """Returns what dataset.json says of the split."""
        shards = tuple(
            dataset.Shard(name, tf.io.gfile.stat(path).length, *content)
            for name, path, content in zip(self.names, self.partials, self._contents)
        )
        return dataset.Split(tuple(self._histogram.tolist()), shards, tuple(self._broken))


def _merge(features):
    """Returns features that hold for all: a size that differs is None, JPEG and PNG an image."""
    first, *others = features
    for other in others:
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


def _choose_num_shards(num_bytes):
    few = min(num_bytes // _SHARD_BYTES, _MAX_SHARDS)
    return int(max(1, few, -(-num_bytes // _LARGEST_SHARD_BYTES)))


def _serialize(row, label):
    values = dict(row.values)
    if row.name:
        values["name"] = row.name.encode()
    feature = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        for name, value in values.items()
    }
    if label is not None:
        feature["label"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def _commit(written: dataset.Dataset, partials):
    """Gives the shards their names, `{name: partial path}`, and the data set its dataset.json."""
    data_dir = written.data_dir
    json_path = os.path.join(data_dir, dataset.FILE_NAME)
    with tf.io.gfile.GFile(json_path + _PARTIAL, "w") as file:
        file.write(dataset.to_json(written))
    replaced = set()
    if tf.io.gfile.exists(json_path):
        replaced = _shard_names(dataset.read(data_dir))
        tf.io.gfile.remove(json_path)
    for name, partial in partials.items():
        tf.io.gfile.rename(partial, os.path.join(data_dir, name), overwrite=True)
    tf.io.gfile.rename(json_path + _PARTIAL, json_path)
    for name in replaced - _shard_names(written) | _leftovers(data_dir):
        tf.io.gfile.remove(os.path.join(data_dir, name))


def _shard_names(data):
    return {shard.name for split in data.splits.values() for shard in split.shards}


def _leftovers(data_dir):
    """Partial shards of runs that were stopped."""
    return {name for name in tf.io.gfile.listdir(data_dir) if name.endswith(".tfrecord" + _PARTIAL)}
