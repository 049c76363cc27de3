"""One training a model_dir, and one keeper of its best checkpoint."""

from __future__ import annotations

import tensorflow as tf

from common import files, locks
from common.errors import UsageError
from engine.checkpoints import recovery

TRAIN_LOCK, BEST_LOCK = ".lock", ".best.lock"


class Ownership:
    """The locks of a model_dir that a job needs.

    A folder that is there is locked before its checkpoints are looked at, since a training that
    resumes may move some away. One that is not there is made and locked when the graph is built:
    until then nothing is written.
    """

    def __init__(self, model_dir: str, purpose: str, lock_names: tuple[str, ...]):
        """Takes the names of the locks; () for a job that only reads."""
        self._model_dir, self._purpose, self._lock_names = model_dir, purpose, lock_names
        self._locks: list[locks.Lock] = []

    def take_existing(self) -> None:
        """Takes the locks if model_dir is there.

        Raises:
          LockedError: another process has one of them.
        """
        if self._lock_names and tf.io.gfile.isdir(self._model_dir):
            self._take()

    def take_new(self) -> None:
        """Makes model_dir and takes the locks, unless `take_existing` has taken them.

        Raises:
          LockedError: another process has one of them.
          UsageError: another process has trained there since this one started.
        """
        if not self._lock_names or self._locks:
            return
        try:
            tf.io.gfile.makedirs(self._model_dir)
        except tf.errors.OpError as error:  # a link to nowhere, say
            raise UsageError(
                f"--model_dir={self._model_dir} cannot be made: {error.message}"
            ) from error
        self._take()
        if TRAIN_LOCK in self._lock_names and recovery.in_order(self._model_dir):
            raise UsageError(
                f"--model_dir={self._model_dir}: another process trained there while this one "
                "started. The same command resumes from its checkpoint"
            )

    def _take(self):
        files.require_writable("model_dir", self._model_dir)
        for name in self._lock_names:
            self._locks.append(locks.acquire(self._model_dir, "model_dir", self._purpose, name))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.release()

    def hook(self) -> tf.estimator.SessionRunHook:
        """Returns a hook that takes the locks of a new model_dir when the graph is built."""
        return _LockHook(self)

    def check(self) -> None:
        """Raises `LockLostError` if another process has taken one of the locks over."""
        for lock in self._locks:
            lock.check()

    def release(self) -> None:
        """Frees model_dir."""
        while self._locks:
            self._locks.pop().release()


class _LockHook(tf.estimator.SessionRunHook):
    def __init__(self, ownership):
        self._ownership = ownership

    def begin(self):
        self._ownership.take_new()
