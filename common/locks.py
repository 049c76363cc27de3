"""Locks on folders: one writer at a time, freed when its process ends, however it ends."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import socket
import time
from typing import Callable

from common.errors import RunError, UsageError

# A writer that was just killed, or is saving after a signal, ends within this time.
_WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.2


class LockedError(UsageError):
    """Another process writes to the folder."""


class LockLostError(RunError):
    """Another process took over the lock of this one, which did not renew it in time."""


class Lock:
    """A lock that this process holds until `release`, or until it ends."""

    def release(self) -> None:
        """Frees the folder. Calling it twice is allowed."""

    def check(self) -> None:
        """Raises `LockLostError` if the lock was lost, which happens on gs:// only."""


def acquire(
    folder: str,
    flag: str,
    purpose: str,
    name: str = ".lock",
    sleep: Callable[[float], None] = time.sleep,
) -> Lock:
    """Takes the lock of a folder that exists, after a short wait if another process holds it.

    On local disk it is a flock of a file in it, which the kernel frees when its process dies. On
    gs:// it is an object that is renewed while its process lives; see `common.gcs_lock`. Other
    remote file systems, and disks without locks, give a lock without effect.

    Args:
      folder: local or gs://.
      flag: name of the flag that gave it, for the message.
      purpose: what this process does, such as "train", for the message of others.
      name: of the file in `folder`; locks of different names do not exclude each other.
      sleep: waits for some seconds.

    Raises:
      LockedError: another process holds it, or the file cannot be made. Names the process, the
        host and the purpose.
    """
    if folder.startswith("gs://"):
        from common import gcs_lock

        return gcs_lock.acquire(folder, flag, purpose, name, sleep)
    if "://" in folder:
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
    """Removes the file of the lock of a dead process in a local folder that may be read-only."""
    path = os.path.join(folder, name)
    if "://" not in folder and os.path.isfile(path):
        with contextlib.suppress(OSError):
            lock = _try_local(path, "")
            if isinstance(lock, Lock):
                lock.release()


@contextlib.contextmanager
def briefly(folder: str):
    """Excludes other processes of this kind while a file in a local folder is read and replaced.

    They wait for each other; a lock of a folder itself leaves no file. On gs:// it does nothing.
    """
    if "://" in folder:
        yield
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a network file system without locks
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def owner(purpose: str) -> dict[str, object]:
    """Returns who this process is, as a lock's file says it."""
    return {
        "purpose": purpose,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": start_time(os.getpid()),
        "since": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def start_time(pid: int) -> str:
    """Returns when a process of this host started, in its kernel's count; "" if it is not alive."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # After the name, which may hold spaces and parentheses: field 22 of proc(5).
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def parse_owner(text: str) -> dict[str, object]:
    """Returns what a lock's file says; {} if it is not readable."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if str(value).isprintable()}


def describe(found: dict[str, object]) -> str:
    """Returns who holds a lock, such as "process 123 on host vm-1 (train, since ...)"."""
    if not found:
        return "another process"
    return (
        f"process {found.get('pid')} on host {found.get('host')} "
        f"({found.get('purpose')}, since {found.get('since')})"
    )


def message(folder: str, flag: str, found: dict[str, object]) -> str:
    """Returns the error message about a folder that is in use."""
    return (
        f"--{flag}={folder} is in use by {describe(found)}. Wait until it ends, or use another "
        f"--{flag}"
    )


class _LocalLock(Lock):
    def __init__(self, path, file):
        self._path, self._file = path, file

    def release(self):
        """Removes the file before it unlocks it, so no other process can lock its name."""
        if not self._file.closed:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            self._file.close()


def _try_local(path, purpose):
    """Returns the lock, or who holds it."""
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
        file.close()  # its last owner removed it between the two
    file.truncate(0)
    file.write(json.dumps(owner(purpose)))
    file.flush()
    return _LocalLock(path, file)


def _is_named(file, path):
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
