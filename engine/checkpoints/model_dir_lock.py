"""Locks of model_dir: one training at a time, and one process that keeps the best checkpoint."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from common import files, locks
from common.errors import UsageError
from engine.checkpoints import checkpoint_files

TRAIN_LOCK, BEST_LOCK = ".lock", ".best.lock"


@dataclasses.dataclass(eq=False)
class ModelDirLock:
    """The locks of model_dir that a run needs; a context manager that releases them.

    An existing folder is locked before its checkpoints are read, because a training that resumes
    may move some away. A new one is created and locked when the graph is built: nothing is written
    before.
    """

    model_dir: str  # local or gs://
    purpose: str  # the --mode, for the error message of another process
    # TRAIN_LOCK and BEST_LOCK, or a part of them; () for a run that only reads.
    lock_names: tuple[str, ...]

    def __post_init__(self):
        """Initializes it without locking."""
        self._locks: list[locks.Lock] = []

    def lock_existing(self) -> None:
        """Takes the locks if model_dir exists.

        Raises:
          LockedError: another process holds one of them.
        """
        if self.lock_names and tf.io.gfile.isdir(self.model_dir):
            self._lock()

    def lock_new(self) -> None:
        """Creates model_dir and takes the locks, unless `lock_existing` has taken them.

        Raises:
          LockedError: another process holds one of them.
          UsageError: model_dir cannot be created, or another process has trained there since this
            one started.
        """
        if not self.lock_names or self._locks:
            return
        try:
            tf.io.gfile.makedirs(self.model_dir)
        except tf.errors.OpError as error:  # such as a dangling link
            raise UsageError(
                f"--model_dir={self.model_dir} cannot be created: {error.message}"
            ) from error
        self._lock()
        if TRAIN_LOCK in self.lock_names and checkpoint_files.list_paths(self.model_dir):
            raise UsageError(
                f"--model_dir={self.model_dir}: another process trained there while this one "
                "started. Run the same command again to resume from its checkpoint"
            )

    def _lock(self):
        files.require_writable("model_dir", self.model_dir)
        for name in self.lock_names:
            self._locks.append(locks.acquire(self.model_dir, "model_dir", self.purpose, name))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.release()

    def hook(self) -> tf.estimator.SessionRunHook:
        """Returns a hook that calls `lock_new` when the graph is built."""
        return _LockHook(self)

    def check(self) -> None:
        """Raises `LockLostError` if another process has taken over one of the locks."""
        for lock in self._locks:
            lock.check()

    def release(self) -> None:
        """Releases the locks."""
        while self._locks:
            self._locks.pop().release()


class _LockHook(tf.estimator.SessionRunHook):
    def __init__(self, model_dir_lock):
        self._model_dir_lock = model_dir_lock

    def begin(self):
        self._model_dir_lock.lock_new()
