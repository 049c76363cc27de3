"""Locks that allow one writer per folder. A lock is freed when its process ends or is killed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from typing import Callable

from common import gcs_lock
from common.lock_owner import Lock, LockedError, describe, message, owner, parse_owner
from common.names import is_remote

# A writer that is saving after a signal needs up to this long.
_WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.2


def acquire(
    folder: str,
    flag: str,
    purpose: str,
    name: str = ".lock",
    sleep: Callable[[float], None] = time.sleep,
) -> Lock:
    """Acquires the lock of an existing folder; waits up to 10 s if another process holds it.

    On a local disk the lock is a flock on a file in the folder, which the kernel releases when the
    process dies. On gs:// it is an object that the process renews; see `common.gcs_lock`. On other
    remote file systems, and on disks without flock, the lock has no effect.

    Args:
      folder: local or gs://.
      flag: name of the flag that holds the folder, for the error message.
      purpose: task of this process, such as "train", for the error message of other processes.
      name: file name of the lock in `folder`. Locks with different names are independent.
      sleep: function that waits for a number of seconds.

    Raises:
      LockedError: another process holds the lock (the message names the process, host and
        purpose), or the lock file cannot be created.
    """
    if folder.startswith("gs://"):
        return gcs_lock.acquire(folder, flag, purpose, name, sleep)
    if is_remote(folder):
        return Lock()
    waited = 0.0
    while True:
        try:
            found = _try_local(os.path.join(folder, name), purpose)
        except OSError as error:
            raise LockedError(f"--{flag}={folder} cannot be locked: {error}") from error
        if isinstance(found, Lock):
            return found
        if waited >= _WAIT_SECONDS:
            raise LockedError(message(folder, flag, found))
        if not waited:
            print(f"waiting up to {_WAIT_SECONDS:.0f} s for {describe(found)}", flush=True)
        sleep(_POLL_SECONDS)
        waited += _POLL_SECONDS


def remove_dead(folder: str, name: str = ".lock") -> None:
    """Removes the lock file of a dead process. Ignores folders that are read-only or remote."""
    path = os.path.join(folder, name)
    if not is_remote(folder) and os.path.isfile(path):
        with contextlib.suppress(OSError):
            lock = _try_local(path, "")
            if isinstance(lock, Lock):
                lock.release()


@contextlib.contextmanager
def briefly(folder: str):
    """Holds a mutex on a local folder while a file in it is read and replaced.

    Waits for other processes. Locks the folder itself, so no file is created. No effect on gs://.
    """
    if is_remote(folder):
        yield
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a network file system without locks
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


class _LocalLock(Lock):
    def __init__(self, path, file):
        self._path, self._file = path, file

    def release(self):
        """Removes the file, then unlocks it, so that no other process locks a removed file."""
        if not self._file.closed:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            self._file.close()


def _try_local(path, purpose):
    """Returns the lock, or the record of its owner."""
    while True:
        file = open(path, "a+", encoding="utf-8", errors="replace")  # noqa: SIM115 - held
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                file.seek(0)
                return parse_owner(file.read(4096))
        except OSError:  # a network file system without locks
            file.close()
            return Lock()
        if _is_named(file, path):
            break
        file.close()  # its last owner removed it before the lock
    file.truncate(0)
    file.write(json.dumps(owner(purpose)))
    file.flush()
    return _LocalLock(path, file)


def _is_named(file, path):
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
