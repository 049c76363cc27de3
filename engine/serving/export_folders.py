"""Staging and version folders of exports, local or on gs://.

A staging folder `temp-<number>` is locked by `temp-<number>.lock` beside it. The lock is created
before the folder and removed after it, so a folder in use always has a lock in use. Locally that is
a flock, which is released when its process ends; on gs:// an object that its process renews. So the
next export can remove the leftovers of a killed one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import time

import tensorflow as tf

from common import locks
from common.names import is_remote

# Not numbers, so that servers do not load them.
_STAGING, _FAILED = "temp-", "failed-"
_STAGING_NAME = re.compile(rf"({_STAGING}[0-9a-f]{{8}})(\.lock)?/?")
_VERSION = re.compile(r"[1-9][0-9]{0,17}")  # below 2**63: servers parse an int64
_LOCK = ".lock"
# On gs://, a staging folder without a write for so long is a leftover.
_OLD_SECONDS = 24 * 3600


@contextlib.contextmanager
def staging(export_dir: str):
    """Yields a new folder in `export_dir`, removed at the end. Removes those of killed exports."""
    tf.io.gfile.makedirs(export_dir)
    name = f"{_STAGING}{secrets.token_hex(4)}"
    with locks.briefly(export_dir):  # no other process sees the lock before it is held
        _remove_leftovers(export_dir)
        lock = locks.acquire(export_dir, "export_dir", "export", f"{name}{_LOCK}")
    path = os.path.join(export_dir, name)
    try:
        tf.io.gfile.makedirs(path)
        yield path
    finally:
        try:
            if tf.io.gfile.exists(path):
                tf.io.gfile.rmtree(path)
        finally:
            lock.release()
            if not is_remote(export_dir):  # a network file system without locks keeps the file
                with contextlib.suppress(OSError):
                    os.unlink(f"{path}{_LOCK}")


def publish(path: str, export_dir: str, has_failed: bool) -> str:
    """Renames the folder `path` to a new version; returns the new path.

    The version is the time in seconds since 1970, increased if needed until it is larger than all
    existing versions and not used by a concurrent export.

    Args:
      path: a folder in that of `staging`.
      export_dir: folder of the versions.
      has_failed: True to rename to `failed-<version>`, which servers do not load.
    """
    with locks.briefly(export_dir):
        version = _next_version(export_dir)
        while True:
            final = os.path.join(export_dir, f"{_FAILED if has_failed else ''}{version}")
            with _claimed(export_dir, version) as is_claimed:
                if is_claimed and not tf.io.gfile.exists(final):
                    tf.io.gfile.rename(path, final)
                    return final
            version += 1


@contextlib.contextmanager
def _claimed(export_dir, version):
    """Yields True unless another process uses this version; locally `locks.briefly` excludes it."""
    if not is_remote(export_dir):
        yield True
        return
    try:
        lock = locks.acquire(export_dir, "export_dir", "export", f"{_STAGING}{version}{_LOCK}")
    except locks.LockedError:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _next_version(export_dir):
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(export_dir))
    newest = max((int(name) for name in names if _VERSION.fullmatch(name)), default=0)
    return max(int(time.time()), newest + 1)


def _remove_leftovers(export_dir):
    """Removes the staging folders, and their locks, whose export is dead."""
    found = map(_STAGING_NAME.fullmatch, tf.io.gfile.listdir(export_dir))
    for name in sorted({match[1] for match in found if match}):
        # A folder that cannot be removed, such as another user's, does no harm.
        with contextlib.suppress(OSError, tf.errors.OpError):
            _remove_if_leftover(os.path.join(export_dir, name))


def _remove_if_leftover(path):
    lock = f"{path}{_LOCK}"
    if is_remote(path):
        if time.time() - _last_change(path) > _OLD_SECONDS:
            _remove_with_lock(path, lock)
        return
    try:
        with open(lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if the export is running
            _remove_with_lock(path, lock)
    except FileNotFoundError:  # the export has just ended, or an earlier version left the folder
        _remove_with_lock(path, lock)


def _remove_with_lock(path, lock):
    if tf.io.gfile.isdir(path):
        tf.io.gfile.rmtree(path)
    if tf.io.gfile.exists(lock):
        tf.io.gfile.remove(lock)


def _last_change(path):
    """Returns the newest modification time in a gs:// folder and of its lock, seconds since 1970.

    0 if there are no files.
    """
    found = [
        os.path.join(folder, name) for folder, _, names in tf.io.gfile.walk(path) for name in names
    ]
    if tf.io.gfile.exists(f"{path}{_LOCK}"):
        found.append(f"{path}{_LOCK}")
    return max((tf.io.gfile.stat(name).mtime_nsec / 1e9 for name in found), default=0.0)
