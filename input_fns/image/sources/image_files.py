"""A split of image files, read and checked by several processes."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from common import folders
from common.names import printable
from input_fns import DataError
from input_fns.convert.source import Broken, Options, Row
from input_fns.dataset_info import Feature
from input_fns.image.sources import decoded_images

# Of the files that a process reads at a time; of all that are being read or wait for the writer.
# Files of formats that are stored as PNG may grow ten times.
_CHUNK, _CHUNK_BYTES = 64, 2**21
_AHEAD_BYTES = 2**27
_SAMPLE_OF_REMOTE = 30
# With fewer files, starting processes takes longer than reading.
_WORTH_PROCESSES = 2000


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """A `RawSplit` of image files.

    Attributes:
      paths: paths of the files, local or gs://.
      labels: int64 `[size]`, or None if the split can only be predicted.
      options: `source`, `image_size`, `channels`, `pixel_range` and `workers` are used.
      groups: `[size]`, equal where examples must stay in one split; None: each is its own.
    """

    paths: np.ndarray
    labels: np.ndarray | None
    options: Options
    groups: np.ndarray | None = None

    @property
    def has_labels(self) -> bool:
        """False if the split can only be predicted."""
        return self.labels is not None

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
        labels, groups = (
            None if values is None else values[indices] for values in (self.labels, self.groups)
        )
        return ImageFiles(self.paths[indices], labels, self.options, groups)

    def __iter__(self) -> Iterator[Row | Broken]:
        channels = self.options.channels
        read = functools.partial(
            decoded_images.read_many,
            image_size=self.options.image_size,
            channels=channels,
            pixel_range=self.options.pixel_range,
        )
        found = each(read, self.paths.tolist(), self.options.workers)
        for name, image in of_one_range(found):
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
        try:
            return tf.io.gfile.stat(path).length
        except tf.errors.OpError:  # its reader says that it is missing
            return 0
    return os.path.getsize(path) if os.path.isfile(path) else 0


def to_row(image: decoded_images.StoredImage, channels: int, name: str) -> Row:
    """Returns the row of an image."""
    feature = Feature(image.encoding, "uint8", (image.height, image.width, channels))
    return Row({"image": image.data}, {"image": feature}, name)


def of_one_range(
    found: Iterable[tuple[Any, Any]],
) -> Iterator[tuple[Any, Any]]:
    """Yields `(item, result)` pairs, after a check that all images state one range of values.

    Some programs write the lowest and the highest value of each image's own pixels. Scaling by them
    would remove the differences in brightness between the images.

    Args:
      found: results are a `StoredImage`, a tuple that begins with one, or a reason.

    Raises:
      DataError: two images state different ranges.
    """
    first = None
    for item, result in found:
        image = result[0] if isinstance(result, tuple) else result
        stated = None if isinstance(image, str) else image.stated_range
        first = first or (stated and (item, stated))
        if stated and stated != first[1]:
            (low, high), (other_low, other_high) = stated, first[1]
            raise DataError(
                f"{printable(str(item))} states that its values are {low:.9g} to {high:.9g}, and "
                f"{printable(str(first[0]))} {other_low:.9g} to {other_high:.9g}, so these may be "
                "their own pixels. Set --pixel_range=LOW,HIGH to the values of black and white of "
                "all images"
            )
        yield item, result


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
    chunks = _chunks(items)
    if len(items) < _WORTH_PROCESSES:
        in_order = ((chunk, function(chunk)) for chunk, _ in chunks)
    else:
        in_order = _in_processes(function, chunks, workers)
    for chunk, results in in_order:
        yield from zip(chunk, results)


def _chunks(items):
    """Yields lists of items that are read at a time, and the bytes of their files."""
    remote = [str(item) for item in items if folders.is_remote(str(item))]
    sample = remote[:: max(1, len(remote) // _SAMPLE_OF_REMOTE)]
    size_of_remote = mean_file_size(sample) if sample else 0
    chunk, num_bytes = [], 0
    for item in items:
        path = str(item)
        size = size_of_remote if folders.is_remote(path) else _size(path)
        if chunk and (len(chunk) == _CHUNK or num_bytes + size > _CHUNK_BYTES):
            yield chunk, num_bytes
            chunk, num_bytes = [], 0
        chunk.append(item)
        num_bytes += size
    if chunk:
        yield chunk, num_bytes


def _in_processes(function, chunks, workers):
    workers = workers or os.cpu_count()
    # Not by fork: it would copy the state of TensorFlow's threads.
    context = multiprocessing.get_context("spawn")
    with _in_root_folder():
        pool = concurrent.futures.ProcessPoolExecutor(workers, context)
    with pool:
        ahead, ahead_bytes = collections.deque(), 0
        for chunk, num_bytes in chunks:
            while ahead and (len(ahead) > 4 * workers or ahead_bytes + num_bytes > _AHEAD_BYTES):
                before, task, size = ahead.popleft()
                ahead_bytes -= size
                yield _result(before, task)
            with _in_root_folder():
                task = pool.submit(function, chunk)
            ahead.append((chunk, task, num_bytes))
            ahead_bytes += num_bytes
        while ahead:
            chunk, task, _ = ahead.popleft()
            yield _result(chunk, task)


def _result(chunk, task):
    try:
        return chunk, task.result()
    except concurrent.futures.process.BrokenProcessPool as error:
        raise DataError(
            f"a worker process was killed, perhaps out of memory, while it read {len(chunk)} files "
            f"from {printable(str(chunk[0]))} on. Use --workers=1 to save memory"
        ) from error
