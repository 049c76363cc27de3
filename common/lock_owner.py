"""What both kinds of locks share: the record that identifies the owner, and the messages."""

from __future__ import annotations

import datetime
import json
import os
import socket

from common.errors import RunError, UsageError


class LockedError(UsageError):
    """Another process writes to the folder."""


class LockLostError(RunError):
    """This process did not renew its lock in time and another process took it over."""


class Lock:
    """A lock that this process holds until `release` or until the process ends."""

    def release(self) -> None:
        """Frees the folder. May be called twice."""

    def check(self) -> None:
        """Raises `LockLostError` if the lock was lost, which happens on gs:// only."""


def owner(purpose: str) -> dict[str, object]:
    """Returns the record that identifies this process in a lock file."""
    return {
        "purpose": purpose,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "pid_namespace": pid_namespace(),
        "started": start_time(os.getpid()),
        "since": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def pid_namespace() -> str:
    """Returns the namespace of process numbers: containers may share a host name, but not these.

    "" on systems without it.
    """
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def start_time(pid: int) -> str:
    """Returns the start time of a process of this host, in clock ticks; "" if it is not alive."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # Field 22 of proc(5), counted after the name, which may contain spaces and ")".
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def parse_owner(text: str) -> dict[str, object]:
    """Returns the record in the text of a lock file; {} if it is not valid."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if str(value).isprintable()}


def describe(found: dict[str, object]) -> str:
    """Returns a description of an owner: "process 123 on host vm-1 (train, since ...)"."""
    if not found:
        return "another process"
    return (
        f"process {found.get('pid')} on host {found.get('host')} "
        f"({found.get('purpose')}, since {found.get('since')})"
    )


def message(folder: str, flag: str, found: dict[str, object]) -> str:
    """Returns the error message for a folder that another process uses."""
    return (
        f"--{flag}={folder} is in use by {describe(found)}. Wait until it ends, or use another "
        f"--{flag}"
    )
