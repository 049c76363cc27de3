"""Fingerprints of Python values and of files, to find the shards that a killed run has finished."""

from __future__ import annotations

import copyreg
import dataclasses
import errno
import functools
import hashlib
import os
import types
from typing import Any

import google_crc32c
import numpy as np

from common import files, folders, names
from input_fns.convert.source import RawSplit
from input_fns.core.json_fields import field, integer, integer_in, utf8_text

# Larger files, which many shards share, are compared by size and time of modification only.
_MAX_BYTES = 2**26


class Fingerprints:
    """Makes fingerprints that equal values have in all processes.

    It follows what a pickle would hold. The bytes of a pickle depend on which values are one
    object, and on the order of sets; and they hold the path of the source, which may be moved.
    """

    def __init__(self, root: str):
        """Takes the folder or file whose path does not count in strings that begin with it."""
        self._root = root
        self._known: dict[int, tuple[Any, str]] = {}

    def of(self, *values: Any) -> str:
        """Returns the fingerprint of values, in hexadecimal.

        Raises:
          TypeError, PicklingError: one cannot be pickled.
        """
        found = hashlib.sha256()
        self._feed(found.update, values)
        return found.hexdigest()

    def of_split(self, split: RawSplit) -> str:
        """Returns the fingerprint of a split. What all its examples share is read once."""
        values = [type(split)]
        for each in dataclasses.fields(split):
            value = getattr(split, each.name)
            values.append(value if each.name in split.KEYS else self._of_shared(value))
        return self.of(*values)

    def _of_shared(self, value):
        if id(value) not in self._known:
            self._known[id(value)] = value, self.of(value)  # with the value, so that its id stays
        return self._known[id(value)][1]

    def _feed(self, feed, value):
        compared = _compared_fields(type(value))
        if compared is not None:
            self._feed(feed, [type(value), *(getattr(value, name) for name in compared)])
        elif isinstance(value, str):
            below = _below(value, self._root)
            value = value if below is None else f"/{below}"
            value = value.encode("utf-8", "surrogatepass")
            feed(b"str %d:" % len(value))
            feed(value)
        elif isinstance(value, (bytes, bytearray)):
            feed(b"bytes %d:" % len(value))
            feed(value)
        elif value is None or isinstance(value, (bool, int, float, range)):
            feed(f"{type(value).__name__} {value!r};".encode())
        elif isinstance(value, np.ndarray) and value.dtype != object:
            feed(f"array {value.dtype.str} {value.shape}:".encode())
            feed(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, (list, tuple, np.ndarray)):
            shape = getattr(value, "shape", None) or len(value)
            feed(f"{type(value).__name__} {shape}:".encode())
            for each in value:
                self._feed(feed, each)
        elif isinstance(value, dict):
            self._feed(feed, [dict, *value.items()])
        elif isinstance(value, (set, frozenset)):
            self._feed(feed, [set, *sorted(self.of(each) for each in value)])
        elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
            if "<" in value.__qualname__:
                raise TypeError(f"{value!r} cannot be pickled")
            feed(f"global {value.__module__}.{value.__qualname__};".encode())
        else:
            reduce = copyreg.dispatch_table.get(type(value))
            reduced = reduce(value) if reduce else value.__reduce_ex__(4)
            if isinstance(reduced, str):  # the name of a global variable
                reduced = reduced, ()
            function, arguments, state, *contents = (*reduced, None, None, None)[:5]
            contents = [list(each) for each in contents if each is not None]
            self._feed(feed, [function, arguments, state, contents])


@functools.cache
def _compared_fields(cls):
    """Returns the names of the fields of a dataclass that are compared; None for another class."""
    if not dataclasses.is_dataclass(cls):
        return None
    return [each.name for each in dataclasses.fields(cls) if each.compare]


@dataclasses.dataclass(frozen=True)
class FileState:
    """A file as it was when a shard was written from it.

    Attributes:
      path: below the source, "" of a source that is a file; the whole path of others.
      num_bytes: its size.
      crc32c: checksum of its content; 0 of a file above 64 MiB.
      modified_ns: its time of modification; 0 of other files, since a copy has another.
    """

    path: str = field(utf8_text)
    num_bytes: int = field(integer)
    crc32c: int = field(integer_in(0, 2**32 - 1))
    modified_ns: int = field(integer)


def state_of(path: str, root: str) -> FileState:
    """Returns the state of a file.

    Raises:
      OSError, OpError: it cannot be read, or is a folder, a pipe or a device.
    """
    if not names.is_remote(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "not a file", path)  # to open a pipe would block
    below = _below(path, root)
    if below is None:
        below = path if names.is_remote(path) else os.path.abspath(path)
    size, crc32c = folders.num_bytes(path), 0
    if size > _MAX_BYTES:
        return FileState(below, size, 0, _modified_ns(path))
    with files.open_bytes(path) as file:
        for piece in iter(functools.partial(file.read, 2**20), b""):
            crc32c = google_crc32c.extend(crc32c, piece)
    return FileState(below, size, crc32c, 0)


def find_change(states: tuple[FileState, ...], root: str) -> str | None:
    """Returns the path of the first file that is not as it was; None if all are."""
    for before in states:
        path = os.path.join(root, before.path) if before.path else root  # of a whole path: itself
        try:
            if state_of(path, root) != before:
                return path
        except folders.errors(path):
            return path
    return None


def _below(path, root):
    """Returns the path below `root`, "" of `root` itself; None of another path."""
    if root and path == root:
        return ""
    return path[len(root) + 1 :] if root and path.startswith(f"{root}/") else None


def _modified_ns(path):
    if names.is_remote(path):
        return folders.gfile().stat(path).mtime_nsec
    return os.stat(path).st_mtime_ns
