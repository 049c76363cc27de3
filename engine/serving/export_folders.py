"""Staging and version folders of exports, local or on gs://.

A local staging folder is locked by a flock, which is released when its process ends; on gs:// by
an object that its process renews. So the next export can remove the leftovers of a killed one.
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
_STAGING_NAME = re.compile(rf"{_STAGING}[0-9a-f]{{8}}")
_VERSION = re.compile(r"[1-9][0-9]{0,17}")  # below 2**63: servers parse an int64
_LOCK = "lock"
# On gs://, a staging folder without a write for so long is a leftover.
_OLD_SECONDS = 24 * 3600


@contextlib.contextmanager
def staging(export_dir: str):
    """Yields a new folder in `export_dir`, removed at the end. Removes those of killed exports."""
    tf.io.gfile.makedirs(export_dir)
    with locks.briefly(export_dir):
        _remove_leftovers(export_dir)
        path = os.path.join(export_dir, f"{_STAGING}{secrets.token_hex(4)}")
        tf.io.gfile.makedirs(path)
        lock = locks.acquire(path, "export_dir", "export", _LOCK)
    try:
        yield path
    finally:
        try:
            if tf.io.gfile.exists(path):
                tf.io.gfile.rmtree(path)
        finally:
            lock.release()


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
        lock = locks.acquire(export_dir, "export_dir", "export", f"{_STAGING}{version}.{_LOCK}")
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
    for name in tf.io.gfile.listdir(export_dir):
        path = os.path.join(export_dir, name.rstrip("/"))
        # A folder that cannot be removed, such as another user's, does no harm.
        with contextlib.suppress(OSError, tf.errors.OpError):
            if _STAGING_NAME.fullmatch(name.rstrip("/")) and tf.io.gfile.isdir(path):
                _remove_if_leftover(path)


def _remove_if_leftover(path):
    if is_remote(path):
        if time.time() - _last_change(path) > _OLD_SECONDS:
            tf.io.gfile.rmtree(path)
        return
    # No lock file: the export was killed after it created the folder, inside `locks.briefly`.
    lock = os.path.join(path, _LOCK)
    with contextlib.suppress(FileNotFoundError), open(lock, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if the export is running
    tf.io.gfile.rmtree(path)


def _last_change(path):
    """Returns the newest modification time of a file in a gs:// folder, in seconds since 1970."""
    found = [
        os.path.join(folder, name) for folder, _, names in tf.io.gfile.walk(path) for name in names
    ]
    return max((tf.io.gfile.stat(name).mtime_nsec / 1e9 for name in found), default=0.0)
