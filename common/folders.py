"""Lists folders, local or gs://, including names that are not UTF-8 and symlink cycles.

TensorFlow's functions fail on such names and follow symlink cycles forever. They are imported for
remote folders only: that takes seconds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

from common.names import is_remote


def gfile():
    """Returns `tf.io.gfile`."""
    import tensorflow as tf

    return tf.io.gfile


def errors(path: str) -> tuple[type[Exception], ...]:
    """Returns the exceptions that a function on files raises for `path`."""
    if not is_remote(path):
        return (OSError,)
    import tensorflow as tf

    return OSError, tf.errors.OpError


def missing_error(path: str) -> type[Exception]:
    """Returns the exception that a read of `path` raises if it is missing."""
    if not is_remote(path):
        return FileNotFoundError
    import tensorflow as tf

    return tf.errors.NotFoundError


def names(folder: str) -> list[str]:
    """Returns the sorted names in a folder; [] if `folder` is not a folder.

    Bytes that are not UTF-8 become lone surrogates, as in `os.listdir`.
    """
    if is_remote(folder):
        there = gfile().listdir(folder) if gfile().isdir(folder) else []
        return sorted(name.rstrip("/") for name in there)
    return sorted(os.listdir(folder or ".")) if os.path.isdir(folder or ".") else []


def is_folder(path: str) -> bool:
    """Returns True for a folder or a link to a folder."""
    return gfile().isdir(path) if is_remote(path) else os.path.isdir(path)


def is_file(path: str, or_missing: bool = False) -> bool:
    """Returns True for a regular file or a link to one; opening a pipe could block forever.

    Args:
      path: local or gs://.
      or_missing: the result for a path that does not exist.
    """
    if is_remote(path):
        if gfile().isdir(path):
            return False
        return or_missing or gfile().exists(path)
    return os.path.isfile(path) or (or_missing and not os.path.lexists(path))


def exists(path: str) -> bool:
    """Returns True for a file, a folder, or a link to one."""
    return gfile().exists(path) if is_remote(path) else os.path.exists(path)


def make(path: str) -> None:
    """Creates a folder and those above it, unless they are there."""
    gfile().makedirs(path) if is_remote(path) else os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
    """Removes a folder with all that is in it."""
    gfile().rmtree(path) if is_remote(path) else shutil.rmtree(path)


def num_bytes(path: str) -> int:
    """Returns the size of a file."""
    return gfile().stat(path).length if is_remote(path) else os.stat(path).st_size


def identity(path: str) -> object:
    """Returns a key that is equal for all paths, links included, to the same file or folder."""
    if is_remote(path):
        return path.rstrip("/")
    try:
        found = os.stat(path)
    except OSError:  # a broken link
        return os.path.abspath(path)
    return found.st_dev, found.st_ino


def files(
    folder: str, visited: set[object], is_skipped: Callable[[str], bool] = lambda name: False
) -> Iterator[str]:
    """Yields the files in a folder and its subfolders, sorted by folder and name.

    Links are followed, but each folder is visited once. A broken link counts as a file.

    Args:
      folder: local or gs://.
      visited: identities of folders to skip; the function adds the folders that it visits.
      is_skipped: whether the files and subfolders of a name are skipped.
    """
    if is_remote(folder):
        yield from _remote_files(folder.rstrip("/"), is_skipped)
        return
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        with os.scandir(path) as entries:
            kept = (entry for entry in entries if not is_skipped(entry.name))
            found = sorted(kept, key=lambda entry: entry.name)
        for entry in found:
            if not _is_folder(entry):
                yield entry.path
        new = []
        for entry in filter(_is_folder, found):
            if identity(entry.path) not in visited:
                visited.add(identity(entry.path))
                new.append(entry.path)
        waiting += new[::-1]


def _remote_files(folder, is_skipped):
    there = gfile().listdir(folder) if gfile().isdir(folder) else []
    found = sorted(name for name in there if not is_skipped(name.rstrip("/")))
    if not folder.startswith("gs://"):  # other file systems do not mark folders by a slash
        found = [n if not gfile().isdir(os.path.join(folder, n)) else f"{n}/" for n in found]
    yield from (os.path.join(folder, name) for name in found if not name.endswith("/"))
    for name in found:
        if name.endswith("/"):
            yield from _remote_files(os.path.join(folder, name.rstrip("/")), is_skipped)


def _is_folder(entry):
    try:
        return entry.is_dir()
    except OSError:  # a link that points to itself
        return False
