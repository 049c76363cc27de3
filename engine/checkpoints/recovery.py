"""Finds the newest checkpoint that is whole, for a training that resumes and for modes that read.

tf.estimator takes the newest checkpoint unread, starts at step 0 in the same folder when the file
`checkpoint` is missing, and never falls back to an older one.
"""

from __future__ import annotations

import os
import re

import numpy as np
import tensorflow as tf

from common import files, folders
from common.errors import RunError, UsageError

BROKEN_DIR = "broken"
_FILE = re.compile(r"(?P<name>.+)\.(?P<part>index|meta|data-\d{5}-of-\d{5})")
_OWN_NAME = re.compile(r"model\.ckpt-(\d{1,18})")
# Left by an interrupted write of the saver, and of the files beside.
_LEFTOVER = re.compile(r"model\.ckpt-\d+(\.meta)?(_temp|\.tmp).*|(checkpoint|graph\.pbtxt)\.tmp.*")


def newest_good(model_dir: str, keep_checkpoint_max: int = 0) -> str | None:
    """Returns the checkpoint that a training resumes from; None if there is none.

    That is the newest one in `model_dir` that is whole and finite. Newer ones are moved into
    `model_dir/broken`, and the file `checkpoint` names those that are left. The leftovers of an
    interrupted write are removed, among them the files of a checkpoint that was never completed. A
    save that was interrupted after its checkpoint is completed.

    Args:
      model_dir: of the training.
      keep_checkpoint_max: checkpoints that a save leaves there; 0: all.

    Raises:
      RunError: there are checkpoints, and none is good. They stay where they are.
    """
    if not tf.io.gfile.isdir(model_dir):
        return None
    files.remove_leftovers(model_dir)
    checkpoints = {
        _step(name): parts
        for name, parts in _checkpoints(model_dir).items()
        if _OWN_NAME.fullmatch(name)
    }
    state = _named(model_dir)
    named = {os.path.basename(path) for path in state}
    # The saver writes data, index, meta and the file `checkpoint`, and removes them in reverse.
    interrupted = [
        step
        for step, parts in checkpoints.items()
        if not parts & {"index", "meta"} and f"model.ckpt-{step}" not in named
    ]
    broken, good = {}, None
    for step in sorted(checkpoints.keys() - set(interrupted), reverse=True):
        path = _path(model_dir, step)
        problem = problem_of(path)
        if problem is None:
            good = path
            break
        was_complete = "meta" in checkpoints[step] or f"model.ckpt-{step}" in named
        if was_complete or _has_index(path):
            broken[path] = problem
        else:
            interrupted.append(step)
    if broken and good is None:
        path, problem = next(iter(broken.items()))
        raise RunError(
            f"none of {len(broken)} checkpoints in {model_dir} can be used; {path}: {problem}. "
            "Nothing was changed; another --model_dir starts a new training"
        )
    for path, problem in broken.items():
        _set_aside(model_dir, path)
        print(f"{path} cannot be used: {problem}. Moved to {os.path.join(model_dir, BROKEN_DIR)}")
    if broken:
        print(f"resuming from {good}")
    for step in interrupted:  # data without a whole index cannot be read by anything
        _remove_all(files_of(_path(model_dir, step)))
    for name in filter(_LEFTOVER.fullmatch, _names(model_dir)):
        _remove(os.path.join(model_dir, name))
    if good is not None:
        steps = [step for step, parts in checkpoints.items() if "index" in parts]
        steps = sorted(step for step in steps if step <= _step_of(good))
        if named and os.path.basename(good) not in named and keep_checkpoint_max:
            for step in steps[:-keep_checkpoint_max]:
                _remove_all(files_of(_path(model_dir, step)))
            steps = steps[-keep_checkpoint_max:]
        paths = [_path(model_dir, step) for step in steps]
        if state[-1:] != paths[-1:]:
            tf.compat.v1.train.update_checkpoint_state(
                model_dir, paths[-1], all_model_checkpoint_paths=paths
            )
    return good


def newest_readable(folder: str, is_trained: bool = True) -> str | None:
    """Returns the newest checkpoint in `folder` that can be used; None if it holds none.

    Changes nothing: a training may be running there. Says which newer ones cannot be used.

    Args:
      folder: local or gs://; its checkpoints may have any names. The newest has the largest number
        at the end of its name.
      is_trained: False to accept one without a global step, or with numbers that are not finite.

    Raises:
      UsageError: there are checkpoints, and none can be used.
    """
    problems = []
    for path in reversed(in_order(folder)):
        problem = problem_of(path, is_trained)
        if problem is None:
            for line in problems:
                print(f"{line}; using {path}", flush=True)
            return path
        problems.append(f"{path} cannot be used: {problem}")
    if problems:
        raise UsageError(f"no checkpoint in {folder} can be used: {problems[0]}")
    return None


def in_order(folder: str) -> list[str]:
    """Returns the paths of the checkpoints in `folder` that have an index, oldest first."""
    found = [name for name, parts in _checkpoints(folder).items() if "index" in parts]
    return [os.path.join(folder, name) for name in sorted(found, key=lambda n: (_step(n), n))]


def files_of(checkpoint):
    """Returns the paths of a checkpoint's files, the index first: without it the rest is none."""
    folder, name = os.path.split(checkpoint)
    parts = _checkpoints(folder).get(name, ())
    return [f"{checkpoint}.{part}" for part in sorted(parts, key=lambda p: p != "index")]


def problem_of(checkpoint: str, is_trained: bool = True) -> str | None:
    """Reads a whole checkpoint; returns what is wrong with it, or None.

    Args:
      checkpoint: path.
      is_trained: whether it must have a global step, and finite numbers only.
    """
    for path in files_of(checkpoint):
        if not folders.is_file(path, or_missing=True):
            return f"{os.path.basename(path)} is not a file"
    try:
        reader = tf.train.load_checkpoint(checkpoint)
        shapes = reader.get_variable_to_shape_map()
        if is_trained and not _has_step(reader, shapes):
            return "its global_step is missing, or not a number"
        for name in sorted(shapes):
            value = reader.get_tensor(name)
            if is_trained and not _is_finite(value):
                return f"{name} is not finite"
    except (tf.errors.OpError, ValueError, IndexError, RuntimeError) as error:
        return " ".join(getattr(error, "message", str(error)).split())
    return None


def _has_step(reader, shapes):
    name = tf.compat.v1.GraphKeys.GLOBAL_STEP
    return shapes.get(name) == [] and reader.get_variable_to_dtype_map()[name].is_integer


def _has_index(checkpoint):
    try:
        tf.train.load_checkpoint(checkpoint)
    except (tf.errors.OpError, ValueError, IndexError, RuntimeError):
        return False
    return True


def _is_finite(value):
    if isinstance(value, bytes):  # a scalar of strings
        return True
    if value.dtype == tf.bfloat16.as_numpy_dtype:
        value = value.astype(np.float32)
    return not np.issubdtype(value.dtype, np.floating) or bool(np.isfinite(value).all())


def _names(folder):
    if not tf.io.gfile.isdir(folder):
        return []
    return [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]


def _checkpoints(folder):
    """Returns `{name: {"index", "meta", "data-..."}}` of the checkpoints in `folder`."""
    found = {}
    for match in filter(None, map(_FILE.fullmatch, _names(folder))):
        found.setdefault(match["name"], set()).add(match["part"])
    return found


def _step(name):
    """Returns the number at the end of a checkpoint's name; -1 if it has none."""
    number = re.search(r"\d{1,18}$", name)
    return int(number[0]) if number else -1


def _step_of(checkpoint):
    return _step(os.path.basename(checkpoint))


def _path(model_dir, step):
    return os.path.join(model_dir, f"model.ckpt-{step}")


def _set_aside(model_dir, checkpoint):
    folder = os.path.join(model_dir, BROKEN_DIR)
    tf.io.gfile.makedirs(folder)
    for path in files_of(checkpoint):
        tf.io.gfile.rename(path, os.path.join(folder, os.path.basename(path)), overwrite=True)


def _named(model_dir):
    """Returns the paths in the file `checkpoint`, the newest last; [] if it cannot be read."""
    path = os.path.join(model_dir, "checkpoint")
    if not folders.is_file(path, or_missing=True):
        raise RunError(f"{path} is not a file; TensorFlow keeps one of that name. Move it away")
    try:
        state = tf.train.get_checkpoint_state(model_dir)
    except (tf.errors.OpError, ValueError):  # a UnicodeDecodeError is a ValueError
        return []
    if state is None:
        return []
    return [*state.all_model_checkpoint_paths, state.model_checkpoint_path]


def _remove_all(paths):
    for path in paths:
        tf.io.gfile.remove(path)


def _remove(path):
    if tf.io.gfile.isdir(path):
        tf.io.gfile.rmtree(path)
    else:
        tf.io.gfile.remove(path)
