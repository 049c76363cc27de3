"""Writes a data set as TFRecord shards and, last of all, the `dataset.json` that completes it."""

from __future__ import annotations

import os
import time
from typing import Callable

import numpy as np
import tensorflow as tf

from input_fns import DataError, dataset
from input_fns.convert.source import RawDataset, RawSplit

# Shards of 10-100 MB, 10-100 of them, are what a TPU's hosts read best (Cloud TPU performance
# guide); a split too small for that gets fewer shards, not smaller ones.
_SHARD_BYTES = 10 * 2**20
_MAX_SHARDS = 100
# Around an example's features: the Example's keys and lengths, the record's length and checksums.
_OVERHEAD_BYTES = 64
_PARTIAL = ".partial"


def write(
    raw: RawDataset,
    data_dir: str,
    num_shards: int = 0,
    progress: Callable[[str], None] = lambda line: None,
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

    Raises:
      DataError: a split is empty, or a label is outside the classes.
    """
    for name, split in raw.splits.items():
        _check(raw, name, split)
    tf.io.gfile.makedirs(data_dir)
    splits = {
        name: _write_split(split, name, data_dir, num_shards, len(raw.class_names), progress)
        for name, split in raw.splits.items()
    }
    images = next(iter(raw.splits.values())).images
    written = dataset.Dataset(
        name=raw.name,
        data_dir=data_dir,
        features={"image": dataset.Feature(images.dtype.name, images.shape[1:])},
        class_names=raw.class_names,
        splits=splits,
    )
    _commit(written)
    return written


def _check(raw, name, split):
    if not len(split.labels):
        raise DataError(f"split '{name}' of {raw.name} has no examples")
    outside = np.flatnonzero((split.labels < 0) | (split.labels >= len(raw.class_names)))
    if len(outside):
        raise DataError(
            f"split '{name}' of {raw.name}: example {outside[0]} has label "
            f"{split.labels[outside[0]]}, outside the {len(raw.class_names)} classes "
            f"({len(outside)} such labels)"
        )


def _write_split(split: RawSplit, name, data_dir, num_shards, num_classes, progress):
    size = len(split.labels)
    num_bytes = size * (split.images[0].nbytes + _OVERHEAD_BYTES)
    num_shards = min(num_shards or _choose_num_shards(num_bytes), size)
    bounds = np.linspace(0, size, num_shards + 1).astype(int)
    shards, started = [], time.monotonic()
    for i, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        shard_name = f"{name}-{i:05d}-of-{num_shards:05d}.tfrecord"
        path = os.path.join(data_dir, shard_name + _PARTIAL)
        with tf.io.TFRecordWriter(path) as writer:
            for image, label in zip(split.images[begin:end], split.labels[begin:end]):
                writer.write(_serialize(image, int(label)))
        shards.append(
            dataset.Shard(shard_name, tf.io.gfile.stat(path).length, num_examples=int(end - begin))
        )
        rate = end / (time.monotonic() - started)
        progress(f"{name}: shard {i + 1}/{num_shards}, {end}/{size} examples, {rate:,.0f}/s")
    histogram = np.bincount(split.labels, minlength=num_classes)
    return dataset.Split(tuple(histogram.tolist()), tuple(shards))


def _choose_num_shards(num_bytes):
    return int(min(max(1, num_bytes // _SHARD_BYTES), _MAX_SHARDS))


def _serialize(image, label):
    little_endian = image.astype(image.dtype.newbyteorder("<"), copy=False)
    feature = {
        "image": tf.train.Feature(
            bytes_list=tf.train.BytesList(value=[little_endian.tobytes()]),
        ),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def _commit(written: dataset.Dataset):
    data_dir = written.data_dir
    json_path = os.path.join(data_dir, dataset.FILE_NAME)
    with tf.io.gfile.GFile(json_path + _PARTIAL, "w") as file:
        file.write(dataset.to_json(written))
    replaced = set()
    if tf.io.gfile.exists(json_path):
        replaced = _shard_names(dataset.read(data_dir))
        tf.io.gfile.remove(json_path)
    for name in sorted(_shard_names(written)):
        path = os.path.join(data_dir, name)
        tf.io.gfile.rename(path + _PARTIAL, path, overwrite=True)
    tf.io.gfile.rename(json_path + _PARTIAL, json_path)
    for name in replaced - _shard_names(written) | _leftovers(data_dir):
        tf.io.gfile.remove(os.path.join(data_dir, name))


def _shard_names(data):
    return {shard.name for split in data.splits.values() for shard in split.shards}


def _leftovers(data_dir):
    """Partial shards of runs that were stopped."""
    return {name for name in tf.io.gfile.listdir(data_dir) if name.endswith(".tfrecord" + _PARTIAL)}
