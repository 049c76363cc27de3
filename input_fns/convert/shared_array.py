"""Arrays in files that many tasks use: a task carries the path, and a process reads the content."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import google_crc32c
import numpy as np

from common import files, names


@dataclasses.dataclass(frozen=True)
class SharedArray:
    """A read-only array in a file.

    Attributes:
      path: local or gs://; it does not count in comparisons and fingerprints.
      dtype: name of its dtype.
      shape: its shape.
      crc32c: checksum of its content.
    """

    path: str = dataclasses.field(compare=False)
    dtype: str
    shape: tuple[int, ...]
    crc32c: int

    @classmethod
    def write(cls, folder: str, blocks: Iterable[np.ndarray]) -> SharedArray:
        """Writes an array that is given in blocks, which are joined along their first axis.

        Args:
          folder: `Runner.folder`, in which the file gets a random name.
          blocks: one at least, equal in dtype and in all axes but the first.
        """
        path, size, crc32c = os.path.join(folder, secrets.token_hex(8)), 0, 0
        with files.open_bytes(path, "wb") as file:
            for block in blocks:
                content = np.ascontiguousarray(block).tobytes()
                file.write(content)
                size, crc32c = size + len(block), google_crc32c.extend(crc32c, content)
        shared = cls(path, block.dtype.str, (size, *block.shape[1:]), crc32c)
        shared.array  # noqa: B018 - the map stays when the file is removed
        return shared

    @functools.cached_property
    def array(self) -> np.ndarray:
        """The array: a map of a local file, the content of a remote one."""
        return _read(self.path, self.dtype, self.shape, self.crc32c)

    def read(self, begin: int, end: int) -> np.ndarray:
        """Returns the elements from `begin` to `end` along the first axis, without a map.

        The pages of a map count as memory of the process: a task that reads a little of each of
        many large arrays should not map them.
        """
        dtype = np.dtype(self.dtype)
        size = dtype.itemsize * math.prod(self.shape[1:])
        content = os.pread(_opened(self.path).fileno(), (end - begin) * size, begin * size)
        return np.frombuffer(content, dtype).reshape(-1, *self.shape[1:])

    def __reduce__(self):
        return SharedArray, (self.path, self.dtype, self.shape, self.crc32c)


@functools.lru_cache(maxsize=512)
def _opened(path):
    """Returns a local file, or a local copy of a remote one."""
    if not names.is_remote(path):
        return open(path, "rb", buffering=0)
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - open until it leaves the cache
    with files.open_bytes(path) as file:
        shutil.copyfileobj(file, copy)
    copy.flush()
    return copy


@dataclasses.dataclass(frozen=True)
class SharedRows:
    """Rows of different lengths, such as the tokens of texts, in a shared array.

    Attributes:
      values: the rows, one after the other: `[values]`.
      begins: where each begins, int64 `[rows]`.
      lengths: number of values of each, int32 `[rows]`.
    """

    values: SharedArray
    begins: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, values: SharedArray, lengths: np.ndarray) -> SharedRows:
        """Returns all rows of an array."""
        return cls(values, np.cumsum(lengths, dtype=np.int64) - lengths, lengths.astype(np.int32))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, indices: Sequence[int] | slice) -> SharedRows:
        return dataclasses.replace(self, begins=self.begins[indices], lengths=self.lengths[indices])

    def joined(self) -> np.ndarray:
        """Returns the values of all rows, one after the other."""
        ends = self.begins + self.lengths
        if np.array_equal(self.begins[1:], ends[:-1]):
            return self.values.read(int(self.begins[0]), int(ends[-1]))
        return np.concatenate([self.values.read(*row) for row in zip(self.begins, ends)])


@dataclasses.dataclass(frozen=True)
class SharedTexts(Sequence):
    """Texts in a shared array.

    Attributes:
      rows: their bytes in UTF-8, uint8.
    """

    rows: SharedRows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, indices: int | Sequence[int] | slice) -> str | SharedTexts:
        if isinstance(indices, (int, np.integer)):
            return next(iter(self[indices : indices + 1]))
        return SharedTexts(self.rows[indices])

    def __iter__(self) -> Iterator[str]:
        content, end = self.rows.joined().tobytes(), 0
        for length in self.rows.lengths.tolist():
            begin, end = end, end + length
            yield content[begin:end].decode()


# A worker process gets a new `SharedArray` with each task.
@functools.lru_cache(maxsize=64)
def _read(path, dtype, shape, crc32c):
    if not np.prod(shape):
        return np.zeros(shape, dtype)  # an empty file has no map
    if not names.is_remote(path):
        return np.memmap(path, dtype, "r", shape=shape)
    with files.open_bytes(path) as file:
        return np.frombuffer(file.read(), dtype).reshape(shape)
