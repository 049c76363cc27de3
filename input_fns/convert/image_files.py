"""A split whose examples are image files, read and checked by several processes."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import os
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from common import folders
from common.names import printable
from input_fns import DataError
from input_fns.convert import decoded_images
from input_fns.convert.source import Broken, Options, Row
from input_fns.dataset_info import Feature

_CHUNK = 64
# Below this the processes would take longer to start than to work.
_WORTH_PROCESSES = 2000


@dataclasses.dataclass(frozen=True)
class PictureFiles:
    """A `RawSplit` of image files.

    Attributes:
      paths: of the files, local or gs://.
      labels: int64 `[size]`.
      options: `source`, `image_size`, `channels` and `workers` are used.
      groups: `[size]`, equal where examples must stay in one split; None: each is its own.
    """

    paths: np.ndarray
    labels: np.ndarray
    options: Options
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def num_bytes(self) -> int:
        """Bytes of the pixels, or of the files as they are."""
        if self.options.image_size is not None:
            return len(self) * int(np.prod(self.options.image_size)) * self.options.channels
        # A sample will do: a stat of a million files on gs:// takes an hour.
        sample = self.paths[:: max(1, len(self) // 1000)]
        return round(np.mean([_size(path) for path in sample]) * len(self))

    def take(self, indices: Sequence[int]) -> PictureFiles:
        """Returns the split of these examples, in the order of the indices."""
        groups = None if self.groups is None else self.groups[indices]
        return PictureFiles(self.paths[indices], self.labels[indices], self.options, groups)

    def __iter__(self) -> Iterator[Row | Broken]:
        size, channels = self.options.image_size, self.options.channels
        chunks = [self.paths[i : i + _CHUNK].tolist() for i in range(0, len(self), _CHUNK)]
        read = _read_here if len(self) < _WORTH_PROCESSES else _read_in_processes
        for names, found in read(chunks, size, channels, self.options.workers):
            for name, picture in zip(names, found):
                if isinstance(picture, str):
                    yield Broken(printable(name), picture)
                    continue
                relative = os.path.relpath(name, self.options.source)
                yield row_of(picture, channels, printable(relative))


def _size(path):
    if folders.is_remote(path):
        return tf.io.gfile.stat(path).length
    return os.path.getsize(path) if os.path.isfile(path) else 0


def row_of(picture: decoded_images.Picture, channels: int, name: str) -> Row:
    """Returns a picture as it is stored."""
    feature = Feature(picture.encoding, "uint8", (picture.height, picture.width, channels))
    return Row({"image": picture.data}, {"image": feature}, name)


def _read_here(chunks, size, channels, workers):
    del workers
    for names in chunks:
        yield names, decoded_images.read_many(names, size, channels)


@contextlib.contextmanager
def _in_root_folder():
    """Starts processes from "/"; they return to the working folder after their first imports.

    `python -c`, by which multiprocessing starts them, looks for modules in the working folder
    first: a pickle.py there would run.
    """
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir("/")
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def _read_in_processes(chunks, size, channels, workers):
    """Yields the chunks in order; a few are under way ahead of the one that is waited for."""
    workers = workers or os.cpu_count()
    # Not by fork: what TensorFlow has started in this process would be copied in mid-flight.
    context = multiprocessing.get_context("spawn")
    with _in_root_folder():
        pool = concurrent.futures.ProcessPoolExecutor(workers, context)
    with pool:
        under_way = collections.deque()
        for names in chunks:
            with _in_root_folder():
                task = pool.submit(decoded_images.read_many, names, size, channels)
            under_way.append((names, task))
            if len(under_way) > 4 * workers:
                yield _result(*under_way.popleft())
        while under_way:
            yield _result(*under_way.popleft())


def _result(names, task):
    try:
        return names, task.result()
    except concurrent.futures.process.BrokenProcessPool as error:
        raise DataError(
            f"a process that reads images was killed, perhaps for want of memory, while it read "
            f"{len(names)} files from {printable(names[0])} on: --workers=1 takes less"
        ) from error
