"""Arrays in files that many tasks use: a task carries the path, and a process maps the content."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable

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
    def write(cls, path: str, blocks: Iterable[np.ndarray]) -> SharedArray:
        """Writes an array that is given in blocks, which are joined along their first axis.

        Args:
          path: a new file in `Runner.folder`.
          blocks: one at least, equal in dtype and in all axes but the first.
        """
        size = crc32c = 0
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

    def __reduce__(self):
        return SharedArray, (self.path, self.dtype, self.shape, self.crc32c)


# A worker process gets a new `SharedArray` with each task.
@functools.lru_cache(maxsize=64)
def _read(path, dtype, shape, crc32c):
    if not np.prod(shape):
        return np.zeros(shape, dtype)  # an empty file has no map
    if not names.is_remote(path):
        return np.memmap(path, dtype, "r", shape=shape)
    with files.open_bytes(path) as file:
        return np.frombuffer(file.read(), dtype).reshape(shape)
