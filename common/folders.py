"""Lists folders, local or gs://, whatever their files are called and wherever links lead.

TensorFlow's functions fail on names that are not UTF-8 and follow links for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import tensorflow as tf


def is_remote(path: str) -> bool:
    """Whether only TensorFlow can read it."""
    return "://" in path


def names(folder: str) -> list[str]:
    """Returns the names in a folder, sorted; [] if it is not one.

    Bytes that are not UTF-8 are lone surrogates, as in all of Python's local names.
    """
    if is_remote(folder):
        there = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
        return sorted(name.rstrip("/") for name in there)
    return sorted(os.listdir(folder or ".")) if os.path.isdir(folder or ".") else []


def is_folder(path: str) -> bool:
    """Whether there is a folder, or a link to one."""
    return tf.io.gfile.isdir(path) if is_remote(path) else os.path.isdir(path)


def is_file(path: str) -> bool:
    """Whether there is a file, or a link to one; a pipe is none."""
    if is_remote(path):
        return tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)
    return os.path.isfile(path)


def identity(path: str) -> object:
    """Returns what equals that of another path to the same file or folder, by links too."""
    if is_remote(path):
        return path.rstrip("/")
    try:
        found = os.stat(path)
    except OSError:  # a link to nothing
        return os.path.abspath(path)
    return found.st_dev, found.st_ino


def files(folder: str, visited: set[object]) -> Iterator[str]:
    """Yields the files in a folder and below it, sorted by folder and name.

    Links are followed. A folder is visited once, however many links lead to it. A link to nothing
    is a file.

    Args:
      folder: local or gs://.
      visited: identities of folders to pass over; those that are visited are added.
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
    except OSError:  # a link to itself
        return False
