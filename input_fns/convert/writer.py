"""Writes a data set as TFRecord shards and finally its `dataset.json`, atomically.

Shards are named by the checksum of their records, so the shards of a new data set do not overwrite
those of the old one. Replacing `dataset.json` commits: a run that is killed at any time leaves the
old data set or the new one.
"""

from __future__ import annotations

import array
import dataclasses
import os
import re
import time
import zlib
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from common import files, folders, names
from input_fns import DataError, dataset_info
from input_fns.convert.source import Broken, RawDataset, has_labels
from input_fns.core import shards
from input_fns.image.annotated_kind import Annotations
from input_fns.image.sources.annotation_counts import Counts

# Shards of 10-100 MB, 10-100 of them, are what a TPU's hosts read best (Cloud TPU performance
# guide). A split too small for that gets fewer shards, not smaller ones; a larger one more.
_SHARD_BYTES = 10 * 2**20
_LARGEST_SHARD_BYTES = 100 * 2**20
_MAX_SHARDS = 100
# Per example: keys and lengths of the Example, length and checksums of the record.
_OVERHEAD_BYTES = 64
_CHANGED = "A file of --source may have changed while it was read: prepare the data again"
# Files of this module: shards, their temporary files (old and new names), and other files.
_OURS = re.compile(
    r".+-\d{5}-of-\d{5}-[0-9a-f]{8}\.tfrecord"
    r"|.+-\d{5}\.tfrecord\.partial(-[0-9a-f]{8})?"
    r"|vocabulary-[0-9a-f]{8}\.model"
    r"|vocab-[0-9a-f]{8}\.txt"
    r"|questions-.+-[0-9a-f]{8}\.json"
    r"|image_ids-[0-9a-f]{8}\.json"
    r"|(users|items|categories|characters)-[0-9a-f]{8}\.txt"
    r"|negatives-.+-[0-9a-f]{8}\.bin"
)


def write(
    raw: RawDataset,
    data_dir: str,
    num_shards: int = 0,
    progress: Callable[[str], None] = lambda line: None,
    prepared_with: dict[str, Any] | None = None,
    before_commit: Callable[[dataset_info.DatasetInfo], None] = lambda complete: None,
) -> dataset_info.DatasetInfo:
    """Writes `raw` into `data_dir`, local or gs://, replacing what is there.

    Writes all shards under temporary names, renames them, replaces `dataset.json`, then removes the
    files of the old data set and of killed runs.

    Args:
      raw: the data set.
      data_dir: folder; created if missing.
      num_shards: shards per split; 0 chooses from the size.
      progress: function that prints a line.
      prepared_with: see `DatasetInfo`.
      before_commit: called with the data set before the commit, when its shards have temporary
        names; may raise to abort.

    Raises:
      DataError: a split has no valid examples, a label is outside of the classes, features differ
        between examples, or a name is invalid.
    """
    _check_names(raw)
    for name, split in raw.splits.items():
        _check(raw, name, split)
    tf.io.gfile.makedirs(data_dir)
    writers = [_SplitWriter(raw, name, data_dir, num_shards, progress) for name in raw.splits]
    try:
        for writer in writers:
            writer.write()
        complete = dataset_info.DatasetInfo(
            name=raw.name,
            data_dir=data_dir,
            features=_merge([writer.features for writer in writers]),
            class_names=raw.class_names,
            splits={writer.name: writer.as_split() for writer in writers},
            prepared_with=prepared_with or {},
            labels=_label_names(raw, writers[0].features),
            properties=raw.properties,
            kind=_kind(raw, writers),
            left_out=raw.left_out,
        )
        before_commit(_with_partials(complete, writers))
        _commit(complete, writers, raw.files)
    finally:
        for writer in writers:
            writer.remove_partials()
    return complete


def _with_partials(complete, writers):
    """Returns the data set with the paths of its shards before they are renamed."""
    splits = {
        writer.name: dataclasses.replace(
            complete.splits[writer.name],
            shards=tuple(
                dataclasses.replace(shard, path=path)
                for shard, path in zip(complete.splits[writer.name].shards, writer.partials)
            ),
        )
        for writer in writers
    }
    return dataclasses.replace(complete, splits=splits)


def content_name(name: str, content: bytes) -> str:
    """Returns a file name with the checksum of the content, such as "a-0123abcd.model"."""
    stem, extension = os.path.splitext(name)
    return f"{stem}-{zlib.crc32(content):08x}{extension}"


def _kind(raw, writers):
    """Returns the kind, with the counts of boxes or pixels of all splits."""
    if not isinstance(raw.kind, Annotations):
        return raw.kind
    splits = {writer.name: writer.counts.as_split() for writer in writers}
    return dataclasses.replace(raw.kind, splits=splits)


def _check_names(raw):
    wrong = names.find_class_name_problem(raw.class_names)
    if wrong:
        raise DataError(f"the classes of {raw.name}: {wrong}")
    for name in (*raw.splits, *raw.files):
        if not names.is_plain_name(name):
            raise DataError(f"{name!a} of {raw.name} cannot be a part of the name of a file")
    if not raw.name or not names.is_line(raw.name):
        raise DataError(f"{raw.name!a} cannot be the name of a data set: it is not a line of text")


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


def _label_names(raw, features):
    """Returns the features that `raw.labels` names, "a" for all of "a/..."."""
    found = []
    for label in raw.labels:
        names_of_label = [name for name in features if f"{name}/".startswith(f"{label}/")]
        if not names_of_label:
            raise DataError(
                f"the label '{label}' of {raw.name} is not a feature; there are "
                f"{', '.join(features)}"
            )
        found += names_of_label
    if len(found) == len(features):
        raise DataError(f"all features of {raw.name} are labels: a model needs one to predict from")
    return tuple(found)


class _SplitWriter:
    """Writes the shards of one split under temporary names and collects their metadata."""

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
        self._contents = []  # (number of examples, checksum, index) of each shard
        self.counts = Counts(raw.kind, name) if isinstance(raw.kind, Annotations) else None
        self.features = {}
        self.partials = []
        self._made = []

    def write(self) -> None:
        """Writes all shards; a shard without valid examples leaves no file."""
        started = time.monotonic()
        for i, (begin, end) in enumerate(zip(self._bounds, self._bounds[1:])):
            name = files.partial_name(f"{self.name}-{i:05d}.tfrecord")
            path = os.path.join(self._data_dir, name)
            crc32 = num_bytes = 0
            offsets = array.array("q")  # of every record
            self._made.append(path)
            with tf.io.TFRecordWriter(path) as writer:
                for record in self._records(begin, end):
                    writer.write(record)
                    crc32 = zlib.crc32(record, crc32)
                    offsets.append(num_bytes)
                    num_bytes += len(record) + shards.FRAMING_BYTES
            if offsets:
                self.partials.append(path)
                self._contents.append((len(offsets), crc32, shards.index(offsets)))
            rate = end / (time.monotonic() - started)
            self._progress(
                f"{self.name}: shard {i + 1}/{len(self._bounds) - 1}, {end}/{len(self._split)} "
                f"examples, {rate:,.0f}/s, {(len(self._split) - end) / rate:.0f} s to go"
            )
        if next(self._rows, None) is not None:
            raise DataError(
                f"split '{self.name}' of {self._raw.name} yields more examples than the "
                f"{len(self._split)} that it has. {_CHANGED}"
            )
        for line in self.counts.lines() if self.counts else ():
            self._progress(f"{self.name}: {line}")
        if not self._contents:
            name, reason = self._broken[0]
            raise DataError(
                f"split '{self.name}' of {self._raw.name}: all of its {len(self._broken)} examples "
                f"are skipped; the first is {name}: {reason}"
            )

    def remove_partials(self) -> None:
        """Removes the remaining temporary files."""
        for path in filter(tf.io.gfile.exists, self._made):
            tf.io.gfile.remove(path)

    def _records(self, begin, end):
        for number in range(begin, end):
            row = next(self._rows, None)
            if row is None:
                raise DataError(
                    f"split '{self.name}' of {self._raw.name} yields {number} examples instead of "
                    f"the {len(self._split)} that it has. {_CHANGED}"
                )
            if isinstance(row, Broken):
                self._broken.append((row.name, row.reason))
                continue
            if self.counts:
                self.counts.add(row)
            label = None
            if self._split.labels is not None:
                label = int(self._split.labels[number])
                self._histogram[label] += 1
            if self.features != row.features:
                self.features = _merge([self.features or row.features, row.features])
            yield _serialize(row, label)

    @property
    def names(self) -> list[str]:
        """Final names of the shards."""
        count = len(self.partials)
        return [
            f"{self.name}-{i:05d}-of-{count:05d}-{crc32:08x}.tfrecord"
            for i, (_, crc32, _) in enumerate(self._contents)
        ]

    def as_split(self) -> dataset_info.SplitInfo:
        """Returns the metadata of the split."""
        infos = tuple(
            dataset_info.ShardInfo(
                name, tf.io.gfile.stat(path).length, count, crc32, offsets=offsets
            )
            for name, path, (count, crc32, offsets) in zip(
                self.names, self.partials, self._contents
            )
        )
        is_labelled = has_labels(self._split)
        histogram = tuple(self._histogram.tolist()) if is_labelled else ()
        return dataset_info.SplitInfo(histogram, infos, tuple(self._broken), is_labelled)


def _merge(features):
    """Returns features that hold for all: image files may differ in size and format."""
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
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return example.SerializeToString(deterministic=True)  # the checksum is part of a file name


def _commit(written: dataset_info.DatasetInfo, writers, others):
    """Renames the shards, replaces dataset.json and removes old files."""
    data_dir = written.data_dir
    for writer in writers:
        for name, partial in zip(writer.names, writer.partials):
            _sync(partial)
            tf.io.gfile.rename(partial, os.path.join(data_dir, name), overwrite=True)
    for name, content in others.items():
        with files.atomic_write(os.path.join(data_dir, name), "wb") as file:
            file.write(content)
    replaced = _replaced_names(data_dir)
    with files.atomic_write(os.path.join(data_dir, dataset_info.FILE_NAME)) as file:
        file.write(dataset_info.to_json(written))
    kept = {dataset_info.FILE_NAME, *others, *_file_names(written)}
    present = set(folders.names(data_dir))
    ours = {name for name in present if _OURS.fullmatch(name)}
    for name in (replaced & present | ours) - kept:
        tf.io.gfile.remove(os.path.join(data_dir, name))
    files.remove_leftovers(data_dir)


def _sync(path):
    """Flushes a local file to disk before older files are removed."""
    if "://" not in path:
        with open(path, "rb") as file:
            os.fsync(file.fileno())


def _replaced_names(data_dir):
    """Returns the file names of the existing data set; none if it is invalid."""
    try:
        return _file_names(dataset_info.read(data_dir))
    except DataError:
        return set()


def _file_names(data):
    found = {shard.name for split in data.splits.values() for shard in split.shards}
    found.update(filter(None, data.kind.side_files(data, data.splits)))
    # dataset.json is untrusted: remove no other files.
    return {name for name in found if name.endswith((".tfrecord", ".model"))}
