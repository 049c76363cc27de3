"""A split of image files, read and checked by several processes."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from common import folders
from common.names import printable
from input_fns import DataError
from input_fns.convert import decoded_images
from input_fns.convert.source import Broken, Options, Row
from input_fns.dataset_info import Feature

_CHUNK = 64
# With fewer files, starting processes takes longer than reading.
_WORTH_PROCESSES = 2000


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """A `RawSplit` of image files.

    Attributes:
      paths: paths of the files, local or gs://.
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
        """Bytes of the pixels or of the files."""
        if self.options.image_size is not None:
            return len(self) * int(np.prod(self.options.image_size)) * self.options.channels
        # From a sample: a stat of a million files on gs:// takes an hour.
        sample = self.paths[:: max(1, len(self) // 1000)]
        return mean_file_size(sample) * len(self)

    def take(self, indices: Sequence[int]) -> ImageFiles:
        """Returns the split of these examples, in the order of the indices."""
        groups = None if self.groups is None else self.groups[indices]
        return ImageFiles(self.paths[indices], self.labels[indices], self.options, groups)

    def __iter__(self) -> Iterator[Row | Broken]:
        channels = self.options.channels
        read = functools.partial(
            decoded_images.read_many, image_size=self.options.image_size, channels=channels
        )
        for name, image in each(read, self.paths.tolist(), self.options.workers):
            if isinstance(image, str):
                yield Broken(printable(name), image)
            else:
                yield to_row(image, channels, name_in(self.options.source, name))


def mean_file_size(paths: Sequence[str]) -> int:
    """Returns the mean size in bytes of files, local or gs://."""
    return round(np.mean([_size(path) for path in paths]))


def name_in(source: str, path: str) -> str:
    """Returns the name of an example: the path of its file below `source`."""
    return printable(os.path.relpath(path, source))


def _size(path):
    if folders.is_remote(path):
        return tf.io.gfile.stat(path).length
    return os.path.getsize(path) if os.path.isfile(path) else 0


def to_row(image: decoded_images.StoredImage, channels: int, name: str) -> Row:
    """Returns the row of an image."""
    feature = Feature(image.encoding, "uint8", (image.height, image.width, channels))
    return Row({"image": image.data}, {"image": feature}, name)


@contextlib.contextmanager
def _in_root_folder():
    """Starts processes in "/"; they return to the working folder after their first imports.

    multiprocessing starts them with `python -c`, which imports from the working folder first: it
    would run a pickle.py there.
    """
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir("/")
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def each(
    function: Callable[[list], list], items: Sequence, workers: int
) -> Iterator[tuple[Any, Any]]:
    """Yields `(item, function([item])[0])` of each item, in order, and reads ahead.

    Args:
      function: maps a list of items to a list of results; it can be pickled.
      items: paths, or objects whose `str` is a path.
      workers: processes; 0: one per core. A few items are read in this process.

    Raises:
      DataError: a process was killed.
    """
    chunks = [items[i : i + _CHUNK] for i in range(0, len(items), _CHUNK)]
    in_order = _in_processes(function, chunks, workers)
    if len(items) < _WORTH_PROCESSES:
        in_order = ((chunk, function(chunk)) for chunk in chunks)
    for chunk, results in in_order:
        yield from zip(chunk, results)


def _in_processes(function, chunks, workers):
    workers = workers or os.cpu_count()
    # Not by fork: it would copy the state of TensorFlow's threads.
    context = multiprocessing.get_context("spawn")
    with _in_root_folder():
        pool = concurrent.futures.ProcessPoolExecutor(workers, context)
    with pool:
        under_way = collections.deque()
        for chunk in chunks:
            with _in_root_folder():
                task = pool.submit(function, chunk)
            under_way.append((chunk, task))
            if len(under_way) > 4 * workers:
                yield _result(*under_way.popleft())
        while under_way:
            yield _result(*under_way.popleft())


def _result(chunk, task):
    try:
        return chunk, task.result()
    except concurrent.futures.process.BrokenProcessPool as error:
        raise DataError(
            f"a worker process was killed, perhaps out of memory, while it read {len(chunk)} files "
            f"from {printable(str(chunk[0]))} on. Use --workers=1 to save memory"
        ) from error
