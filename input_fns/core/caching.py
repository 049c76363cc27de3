"""Caches a training split: in memory, or as local copies of its records."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil

import numpy as np
import tensorflow as tf

from common import files, folders
from input_fns import DataError
from input_fns.core import memory
from input_fns.dataset_info import DatasetInfo

AUTO, MEMORY, NONE = "auto", "memory", "none"
# With "auto", splits up to this size are cached in memory. A constant: the order of the examples
# must not depend on the machine's memory.
AUTO_BYTES = 2**30
# Fraction of the available memory; the rest is for the model and for prefetched batches.
_SHARE = 0.5
_COPIED_BYTES = 2**24  # at once


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a split is cached.

    Attributes:
      in_memory: the whole split is in memory and shuffled uniformly; else it is read each epoch.
      decoded: images are decoded once and kept as pixels.
      path: local folder of copies of the records, or "".
    """

    in_memory: bool
    decoded: bool = False
    path: str = ""


def plan(data: DatasetInfo, split_name: str, cache: str) -> Plan:
    """Returns how a training split is cached.

    Args:
      data: the data set.
      split_name: name of the split.
      cache: "auto", "memory", "none", or a local folder.

    Raises:
      DataError: the split does not fit in memory, or on the disk of the folder.
    """
    split = data.split(split_name)
    if cache == NONE:
        return Plan(in_memory=False)
    decoded, stored = _sizes(data, split)
    if cache not in (AUTO, MEMORY):
        return Plan(in_memory=False, path=_local_copy(data, split_name, cache))
    room = int(memory.available_bytes() * _SHARE)
    limit = min(room, AUTO_BYTES) if cache == AUTO else room
    for size, is_decoded in ((decoded, True), (stored, False)):
        if size is not None and size <= limit:
            return Plan(in_memory=True, decoded=is_decoded)
    if cache == MEMORY:
        size = min(filter(None, (decoded, stored)))
        raise DataError(
            f"--cache=memory: split '{split_name}' needs {_gib(size)}, more than half of the "
            f"available memory, {_gib(room)}. Use --cache=none, or a local folder"
        )
    if min(filter(None, (decoded, stored))) <= AUTO_BYTES:
        print(
            f"split '{split_name}' needs more than half of the available memory, {_gib(room)}: "
            "reading it from its files each epoch, in another order than from memory"
        )
    return Plan(in_memory=False)


def local_copy(path, offset, end, number, folder):
    """Returns the path, a string scalar, of a local copy of a range of a file, and the offset 0.

    Returns the file and the offset if it is missing or too short: the error about its records is
    that of reading without a copy, and an exception here would print a stack trace. The first call
    that reads a range writes its copy. Processes that write one at the same time write the same
    bytes, each to a temporary file.

    Args:
      path: string scalar, local or gs://.
      offset: int64 scalar, byte offset of the range.
      end: int64 scalar, byte offset of its end.
      number: int64 scalar, the index of the file in its split.
      folder: path of the folder of copies, from `Plan`.
    """

    def copy_once(path, offset, end, number):
        copy = os.path.join(folder, f"{number:05d}-{offset}-{end}.tfrecord")
        if _bytes_of_file(copy) != end - offset:
            try:
                _copy_range(path.decode(), int(offset), int(end), copy)
            except (tf.errors.OpError, DataError):
                return path, offset
            except OSError as error:  # such as a full disk; an error of a write names no file
                raise OSError(error.errno, error.strerror, copy) from error
        return copy.encode(), np.int64(0)

    types = [tf.string, tf.int64]
    copy, offset = tf.numpy_function(copy_once, [path, offset, end, number], types)
    return tf.ensure_shape(copy, []), tf.ensure_shape(offset, [])


def _copy_range(path, offset, end, copy):
    with tf.io.gfile.GFile(path, "rb") as source, files.atomic_write(copy, "wb") as file:
        source.seek(offset)
        while offset < end:
            content = source.read(min(_COPIED_BYTES, end - offset))
            if not content:
                raise DataError(f"{path} ends before byte {end}")
            file.write(content)
            offset += len(content)


def _sizes(data, split):
    """Returns the bytes of a split decoded (None if shapes differ) and stored (None: no images)."""
    features = data.features.values()
    decoded = None
    if all(feature.is_static for feature in features):
        decoded = split.num_examples * sum(feature.num_bytes for feature in features)
    if not any(feature.is_image_file for feature in features):
        return decoded, None
    return decoded, split.num_bytes


def _local_copy(data, split_name, folder):
    split = data.split(split_name)
    try:
        os.makedirs(folder, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise DataError(f"--cache={folder} cannot be created: {error}") from error
    # The name depends on the records' checksums: it differs between data sets.
    identity = hashlib.sha256(repr((data.data_dir, split)).encode()).hexdigest()[:12]
    name = re.sub(r"[^\w.-]", "_", data.name)  # such as "tfds:cifar10"
    path = os.path.join(folder, f"{name}-{split_name}-{identity}")
    files.remove_leftovers(path)
    present = sum(_bytes_of_file(os.path.join(path, name)) for name in folders.names(path))
    if split.num_bytes > free + present:
        raise DataError(
            f"--cache={folder}: split '{split_name}' needs {_gib(split.num_bytes)}, and the disk "
            f"has {_gib(free)} free. Use --cache=none, or another folder"
        )
    return path


def _bytes_of_file(path):
    try:
        return os.path.getsize(path)
    except FileNotFoundError:  # another process has removed or renamed it
        return 0


def _gib(size):
    return f"{size / 2**30:.1f} GiB"
