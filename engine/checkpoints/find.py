"""Finds the checkpoint to use: latest, best, average:N or a path; waits for new ones."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import tensorflow as tf

from common.errors import UsageError
from common.names import is_remote
from engine.checkpoints import averaging, best, checkpoint_files, verify
from engine.checkpoints.checkpoint_files import BEST_DIR

_POLL_SECS = 1.0
_REPORT_SECS = 10.0  # before a line that says what is waited for


def find_checkpoint(model_dir: str, which: str) -> str:
    """Returns the path of a valid checkpoint. In a folder, invalid ones are skipped and printed.

    Args:
      model_dir: folder of "latest", "best" and "average:N".
      which: "latest"; "best"; "average:N", the mean of the newest N, which is written to
        `model_dir/average_N`; or the path of a checkpoint or of a folder of checkpoints.

    Raises:
      UsageError: it is missing or invalid.
    """
    if which.startswith("average:"):
        return averaging.average_newest(model_dir, which.partition(":")[2])
    if which == "best":
        path = best.find_best(model_dir)
    else:
        path = find_in(checkpoint_files.folder_or_path(model_dir, which))
    if path is None:
        raise checkpoint_files.not_found(model_dir, which)
    return path


def find_in(path: str, is_trained: bool = True) -> str | None:
    """Returns the checkpoint `path`, or the newest valid one in the folder `path`, or None.

    Args:
      path: of a checkpoint or of a folder, or one that `checkpoint_files.to_prefix` accepts.
      is_trained: False to accept a checkpoint of any program, without a global step.

    Raises:
      UsageError: the checkpoint, or every one in the folder, is invalid.
    """
    path = checkpoint_files.to_prefix(path)
    if tf.io.gfile.isdir(path):
        return verify.find_newest_valid(path, is_trained)
    if not tf.io.gfile.exists(f"{path}.index"):
        return None
    problem = verify.find_problem(path, is_trained)
    if problem:
        raise UsageError(f"the checkpoint {path} cannot be used: {problem}")
    return path


def latest(model_dir: str) -> str | None:
    """Returns the newest checkpoint in `model_dir` without verification, or None."""
    return tf.train.latest_checkpoint(model_dir)


def checkpoints_iterator(model_dir: str, timeout_secs: float) -> Iterator[str]:
    """Yields the newest valid checkpoint of a running training, whenever there is a newer one.

    Ends after `timeout_secs` seconds without one. An invalid checkpoint may be incomplete:
    it is skipped until its files change. A longer wait is printed, once for each checkpoint.
    """
    last, invalid, waiting_since, is_reported = None, {}, time.monotonic(), False
    while time.monotonic() - waiting_since <= timeout_secs:
        for path in reversed(checkpoint_files.list_paths(model_dir)):
            if path == last:
                break
            with contextlib.suppress(tf.errors.NotFoundError):  # removed by the training
                names = checkpoint_files.list_files(path)
                sizes = [tf.io.gfile.stat(name).length for name in names]
                if sizes == invalid.get(path):
                    continue
                if verify.find_problem(path) is None:
                    last = path
                    yield path
                    waiting_since, is_reported = time.monotonic(), False
                    break
                invalid[path] = sizes
        if not is_reported and time.monotonic() - waiting_since >= _REPORT_SECS:
            which = f"newer than {os.path.basename(last)} " if last else ""
            print(
                f"waiting for a checkpoint {which}in {model_dir}, at most {timeout_secs:g} s",
                flush=True,
            )
            is_reported = True
        time.sleep(_POLL_SECS)


def read_step(checkpoint: str | None) -> int:
    """Returns the global step stored in a checkpoint; 0 for None."""
    if checkpoint is None:
        return 0
    return int(tf.train.load_variable(checkpoint, tf.compat.v1.GraphKeys.GLOBAL_STEP))


def folder_label(model_dir: str, checkpoint: str) -> str:
    """Returns "" for a checkpoint that was trained in `model_dir`, else the name of its folder.

    Results of a checkpoint from elsewhere, such as an average, get this label in their names: they
    must not replace those of the checkpoint of `model_dir` with the same global step.
    """
    folder = _absolute(os.path.dirname(checkpoint))
    if folder in (_absolute(model_dir), _absolute(os.path.join(model_dir, BEST_DIR))):
        return ""
    return os.path.basename(folder)


def add_label(name: str, model_dir: str, checkpoint: str) -> str:
    """Returns `name`, followed by an underscore and the `folder_label`, if it is not empty."""
    return "_".join(filter(None, [name, folder_label(model_dir, checkpoint)]))


def _absolute(path):
    return path.rstrip("/") if is_remote(path) else os.path.abspath(path)
