"""Where the examples of a training split wait between epochs."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import os
import re
import shutil
from typing import IO

from input_fns import DataError, memory
from input_fns.dataset_info import DatasetInfo

AUTO, MEMORY, NONE = "auto", "memory", "none"
# By itself a split is held in memory if it takes no more than this: not a share of what the machine
# has, or the order of the examples would depend on the machine.
AUTO_BYTES = 2**30
# Of the available memory; the rest is for the model, and for batches on their way.
_SHARE = 0.5
_FINISHED = ".index"  # what tf.data writes last
_locks: dict[str, IO] = {}  # of the copies that this process makes


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a split is kept.

    Attributes:
      in_memory: the whole split, perfectly shuffled; else it is read anew each epoch.
      decoded: images are kept as pixels and decoded once.
      path: of a local copy of the records, or "".
    """

    in_memory: bool
    decoded: bool = False
    path: str = ""


def plan(data: DatasetInfo, split_name: str, cache: str) -> Plan:
    """Returns how the training split is kept.

    Args:
      data: the data set.
      split_name: of the split.
      cache: "auto", "memory", "none", or a local folder.

    Raises:
      DataError: the split is larger than the memory, or than the folder's disk.
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
            f"--cache=memory: split '{split_name}' takes {_gib(size)}, and half of the memory that "
            f"is available is {_gib(room)}; use --cache=none, or a local folder"
        )
    if min(filter(None, (decoded, stored))) <= AUTO_BYTES:
        print(
            f"half of the memory that is available is {_gib(room)}, too little for split "
            f"'{split_name}': it is read anew each epoch, in another order than from memory"
        )
    return Plan(in_memory=False)


def claim(path: str) -> str:
    """Returns `path` where this process may read or make the copy of that name, else "".

    tf.data fails beside another process that makes it, and beside what a killed one has left. So
    one process makes it, and the others do without until it is there; what was left is removed.
    """
    import fcntl  # not on Windows, where the rest of this package may run

    if os.path.exists(path + _FINISHED) or path in _locks:
        return path
    lock = open(f"{path}.lock", "wb")  # noqa: SIM115 - held until the process ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        print(f"{path}: another process makes this copy; this one reads the records where they are")
        return ""
    _locks[path] = lock
    for left in glob.glob(f"{glob.escape(path)}_[0-9]*"):
        os.remove(left)
    return path


def _sizes(data, split):
    """Returns the bytes of a split as pixels, None if they differ in shape, and as stored."""
    features = data.features.values()
    decoded = None
    if all(feature.is_static for feature in features):
        decoded = split.num_examples * sum(feature.num_bytes for feature in features)
    if all(feature.encoding == "raw" for feature in features):
        return decoded, None
    return decoded, split.num_bytes


def _local_copy(data, split_name, folder):
    split = data.split(split_name)
    try:
        os.makedirs(folder, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise DataError(f"--cache={folder} is no folder that can be made: {error}") from error
    # The name holds the records' checksums: those of another data set are never taken for them.
    identity = hashlib.sha256(repr((data.data_dir, split)).encode()).hexdigest()[:12]
    name = re.sub(r"[^\w.-]", "_", data.name)  # such as "tfds:cifar10"
    path = os.path.join(folder, f"{name}-{split_name}-{identity}")
    if glob.glob(f"{glob.escape(path)}*{_FINISHED}"):
        return path
    # What a killed process has left is removed by `claim`, or another is just writing it.
    free += sum(os.path.getsize(left) for left in glob.glob(f"{glob.escape(path)}-*_[0-9]*"))
    if split.num_bytes > free:
        raise DataError(
            f"--cache={folder}: split '{split_name}' takes {_gib(split.num_bytes)}, and the disk "
            f"has {_gib(free)} left"
        )
    return path


def _gib(size):
    return f"{size / 2**30:.1f} GiB"
