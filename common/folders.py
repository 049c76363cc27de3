"""Lists folders, local or gs://, including names that are not UTF-8 and symlink cycles.

TensorFlow's functions fail on such names and follow symlink cycles forever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import tensorflow as tf

from common.names import is_remote


def names(folder: str) -> list[str]:
    """Returns the sorted names in a folder; [] if `folder` is not a folder.

    Bytes that are not UTF-8 become lone surrogates, as in `os.listdir`.
    """
    if is_remote(folder):
        there = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
        return sorted(name.rstrip("/") for name in there)
    return sorted(os.listdir(folder or ".")) if os.path.isdir(folder or ".") else []


def is_folder(path: str) -> bool:
    """Returns True for a folder or a link to a folder."""
    return tf.io.gfile.isdir(path) if is_remote(path) else os.path.isdir(path)


def is_file(path: str, or_missing: bool = False) -> bool:
    """Returns True for a regular file or a link to one; opening a pipe could block forever.

    Args:
      path: local or gs://.
      or_missing: the result for a path that does not exist.
    """
    if is_remote(path):
        if tf.io.gfile.isdir(path):
            return False
        return or_missing or tf.io.gfile.exists(path)
    return os.path.isfile(path) or (or_missing and not os.path.lexists(path))


def identity(path: str) -> object:
    """Returns a key that is equal for all paths, links included, to the same file or folder."""
    if is_remote(path):
        return path.rstrip("/")
    try:
        found = os.stat(path)
    except OSError:  # a broken link
        return os.path.abspath(path)
    return found.st_dev, found.st_ino


def files(folder: str, visited: set[object]) -> Iterator[str]:
    """Yields the files in a folder and its subfolders, sorted by folder and name.

    Links are followed, but each folder is visited once. A broken link counts as a file.

    Args:
      folder: local or gs://.
      visited: identities of folders to skip; the function adds the folders that it visits.
    """
    if is_remote(folder):
        for path, _, found in tf.io.gfile.walk(folder):
            yield from (os.path.join(path, name) for name in sorted(found))
        return
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        with os.scandir(path) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            if not _is_folder(entry):
                yield entry.path
        new = []
        for entry in filter(_is_folder, found):
            if identity(entry.path) not in visited:
                visited.add(identity(entry.path))
                new.append(entry.path)
        waiting += new[::-1]


def _is_folder(entry):
    try:
        return entry.is_dir()
    except OSError:  # a link that points to itself
        return False
