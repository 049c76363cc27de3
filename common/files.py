"""Files that are whole or not there, on local disk and gs://."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import time

import tensorflow as tf

from common.errors import UsageError

_PARTIAL = re.compile(r".+\.partial-[0-9a-f]{8}")
_OLD_SECONDS = 3600


def partial_name(path: str) -> str:
    """Returns a temporary name beside `path`, which no other process uses."""
    return f"{path}.partial-{secrets.token_hex(4)}"


@contextlib.contextmanager
def atomic_write(path: str, mode: str = "w"):
    """Yields a file that gets the name `path` when the `with` block ends without an error.

    A local file reaches the disk before it gets its name, so that a power cut leaves the old file
    or the new one. Text is UTF-8.

    Args:
      path: local or gs://; missing folders are made.
      mode: "w" or "wb".

    Raises:
      OSError, OpError: it cannot be written; the old file stays.
    """
    partial = partial_name(path)
    if "://" in path:
        with _remote_write(path, partial, mode) as file:
            yield file
        return
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, exist_ok=True)
    remove_leftovers(folder, os.path.basename(path))
    with _locked(partial, mode) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise
    sync_folder(folder)


def read_text(path: str, max_bytes: int = 2**26) -> str:
    """Returns a text file of UTF-8.

    Raises:
      ValueError: it is a folder, a pipe or a device, larger than `max_bytes`, or not UTF-8.
      OSError, OpError: it cannot be read.
    """
    if not is_regular(path):
        raise ValueError(f"{path} is not a file")
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"{path} is larger than {max_bytes} bytes")
    return content.decode()


def is_regular(path: str) -> bool:
    """Whether `path` is a file, or missing; opening a pipe would wait for ever."""
    if "://" in path:
        return not tf.io.gfile.isdir(path)
    return os.path.isfile(path) or not os.path.lexists(path)


def sync_folder(folder: str) -> None:
    """Brings the names in a local folder to the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems cannot; their server does it.
        with contextlib.suppress(OSError):
            os.fsync(number)
    finally:
        os.close(number)


def copy(source: str, path: str) -> None:
    """Copies a file; `path` is the old file, or the whole new one."""
    if "://" in path:
        tf.io.gfile.copy(source, path, overwrite=True)  # it gets its name when it is complete
        return
    with tf.io.gfile.GFile(source, "rb") as old, atomic_write(path, "wb") as new:
        while chunk := old.read(2**24):
            new.write(chunk)


def require_writable(flag: str, directory: str) -> None:
    """Checks that `directory` can be written, or made, and leaves nothing behind.

    Raises:
      UsageError: it cannot.
    """
    existing = directory
    # On gs:// there are no folders to be made, and what is above a bucket is nothing.
    while "://" not in directory and not os.path.lexists(existing or "."):
        existing = os.path.dirname(existing.rstrip("/"))
    try:
        if "://" in directory:
            _write_and_remove(partial_name(os.path.join(directory, ".writable")))
        else:
            _require_local(existing or ".")
    except (OSError, tf.errors.OpError) as error:
        problem = getattr(error, "message", None) or error
        raise UsageError(f"--{flag}={directory} cannot be written: {problem}") from error


def _require_local(folder):
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600))  # a file without a name
    except OSError as error:
        # File systems without such files; a kernel without them takes it for the folder itself.
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "Permission denied", folder) from error


def _write_and_remove(path):
    with tf.io.gfile.GFile(path, "w") as file:
        file.write("")
    tf.io.gfile.remove(path)


def remove_leftovers(folder: str, name: str = "") -> None:
    """Removes the temporary files of processes that were killed in `atomic_write`.

    Args:
      folder: local or gs://.
      name: only those of the file of this name; "" for all.

    A live process holds a lock on its local file, which stays. There are no locks on gs://: files
    that have not changed for an hour are removed there.
    """
    is_remote = "://" in folder
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    for partial in filter(_PARTIAL.fullmatch, names):
        if name and not partial.startswith(f"{name}.partial-"):
            continue
        path = os.path.join(folder, partial)
        # Another process may have removed it, or given it its name.
        with contextlib.suppress(OSError, tf.errors.OpError):
            if is_remote:
                _remove_if_old(path)
            else:
                _remove_if_unlocked(path)


def _remove_if_unlocked(path):
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)


def _remove_if_old(path):
    if time.time() - tf.io.gfile.stat(path).mtime_nsec / 1e9 > _OLD_SECONDS:
        tf.io.gfile.remove(path)


@contextlib.contextmanager
def _locked(partial, mode):
    encoding = None if "b" in mode else "utf-8"
    while True:
        file = open(partial, mode, encoding=encoding)  # noqa: SIM115 - closed below
        with contextlib.suppress(OSError):  # a file system without locks has no cleaner either
            fcntl.flock(file, fcntl.LOCK_SH)
        if os.fstat(file.fileno()).st_nlink:
            break
        file.close()  # `remove_leftovers` came between the two
    with file:
        yield file


@contextlib.contextmanager
def _remote_write(path, partial, mode):
    tf.io.gfile.makedirs(os.path.dirname(path))
    try:
        with tf.io.gfile.GFile(partial, mode) as file:
            yield file
    except BaseException:
        if tf.io.gfile.exists(partial):
            tf.io.gfile.remove(partial)
        raise
    tf.io.gfile.rename(partial, path, overwrite=True)
