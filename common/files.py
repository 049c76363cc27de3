"""Atomic writes, copies and reads of files, local or gs://.

Imports TensorFlow for remote files only: that takes seconds.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import time

from common import folders
from common.errors import UsageError

_PARTIAL = re.compile(r".+\.partial-[0-9a-f]{8}")
_OLD_SECONDS = 3600
# Errors of a full or failing disk.
_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


def partial_name(path: str) -> str:
    """Returns a unique temporary path in the folder of `path`."""
    return f"{path}.partial-{secrets.token_hex(4)}"


@contextlib.contextmanager
def atomic_write(path: str, mode: str = "w"):
    """Yields a temporary file that is renamed to `path` when the `with` block succeeds.

    A local file is fsynced before the rename, so that a power failure leaves either the old or the
    new file. Text is encoded as UTF-8.

    Args:
      path: local or gs://. Missing folders are created.
      mode: "w" or "wb".

    Raises:
      OSError, OpError: the file cannot be written. The old file is unchanged.
    """
    partial = partial_name(path)
    if folders.is_remote(path):
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
        except BaseException as error:
            if isinstance(error, OSError) and error.errno in _WRITE_ERRORS:
                error.filename = error.filename or path  # write(2) has no name
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise
    sync_folder(folder)


def read_text(path: str, max_bytes: int = 2**26) -> str:
    """Returns the content of a UTF-8 text file.

    Raises:
      ValueError: `path` is a folder, a pipe or a device, is larger than `max_bytes`, or is not
        UTF-8.
      OSError, OpError: the file is missing or cannot be read.
    """
    if not folders.is_file(path, or_missing=True):
        raise ValueError(f"{path} is not a file")
    with open_bytes(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"{path} is larger than {max_bytes} bytes")
    return content.decode()


def open_bytes(path: str, mode: str = "rb"):
    """Opens a file, local or gs://."""
    return folders.gfile().GFile(path, mode) if folders.is_remote(path) else open(path, mode)


def sync_folder(folder: str) -> None:
    """Fsyncs a local folder, which makes renames in it durable."""
    number = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems do not support it; their server syncs.
        with contextlib.suppress(OSError):
            os.fsync(number)
    finally:
        os.close(number)


def copy(source: str, path: str) -> None:
    """Copies a file atomically, local or gs://."""
    if folders.is_remote(path):
        folders.gfile().copy(source, path, overwrite=True)  # an object appears when it is complete
        return
    with open_bytes(source) as old, atomic_write(path, "wb") as new:
        while chunk := old.read(2**24):
            new.write(chunk)


def require_writable(flag: str, directory: str) -> None:
    """Checks that `directory` can be written or created. Leaves no files behind.

    Args:
      flag: name of the flag, for the error message.
      directory: local or gs://; need not exist.

    Raises:
      UsageError: it cannot be written.
    """
    try:
        if folders.is_remote(directory):
            _write_and_remove(partial_name(os.path.join(directory, ".writable")))
        else:
            existing = directory
            while not os.path.lexists(existing or "."):
                existing = os.path.dirname(existing.rstrip("/"))
            _require_local(existing or ".")
    except folders.errors(directory) as error:
        problem = getattr(error, "message", None) or error
        raise UsageError(f"--{flag}={directory} cannot be written: {problem}") from error


def _require_local(folder):
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600))  # an unnamed file
    except OSError as error:
        # File systems and kernels without O_TMPFILE.
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "Permission denied", folder) from error


def _write_and_remove(path):
    with folders.gfile().GFile(path, "w") as file:
        file.write("")
    folders.gfile().remove(path)


def remove_if_empty(folder: str) -> None:
    """Removes a folder, local or gs://, unless it has files, such as those of another process."""
    if folders.is_remote(folder):
        if not folders.names(folder):
            folders.gfile().rmtree(folder)
        return
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def remove_leftovers(folder: str, name: str = "") -> None:
    """Removes temporary files of processes that were killed in `atomic_write`.

    A live process holds a lock on its local file, which is kept. gs:// has no locks: there, files
    that have not changed for an hour are removed.

    Args:
      folder: local or gs://.
      name: remove only temporary files of this file name; "" for all.
    """
    remove = _remove_if_old if folders.is_remote(folder) else _remove_if_unlocked
    for partial in filter(_PARTIAL.fullmatch, folders.names(folder)):
        if name and not partial.startswith(f"{name}.partial-"):
            continue
        path = os.path.join(folder, partial)
        # Another process may have removed or renamed it.
        with contextlib.suppress(*folders.errors(folder)):
            remove(path)


def _remove_if_unlocked(path):
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)


def _remove_if_old(path):
    if time.time() - folders.gfile().stat(path).mtime_nsec / 1e9 > _OLD_SECONDS:
        folders.gfile().remove(path)


@contextlib.contextmanager
def _locked(partial, mode):
    encoding = None if "b" in mode else "utf-8"
    while True:
        file = open(partial, mode, encoding=encoding)  # noqa: SIM115 - closed below
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_SH)
        if os.fstat(file.fileno()).st_nlink:
            break
        file.close()  # `remove_leftovers` removed it before the lock
    with file:
        yield file


@contextlib.contextmanager
def _remote_write(path, partial, mode):
    folders.gfile().makedirs(os.path.dirname(path))
    try:
        with folders.gfile().GFile(partial, mode) as file:
            yield file
    except BaseException:
        if folders.gfile().exists(partial):
            folders.gfile().remove(partial)
        raise
    folders.gfile().rename(partial, path, overwrite=True)
