"""Repairs model_dir before training resumes: broken checkpoints, interrupted saves.

tf.estimator resumes from the newest checkpoint without verifying it, restarts at step 0 if the file
`checkpoint` is missing, and never falls back to an older checkpoint.
"""

from __future__ import annotations

import os
import re

import tensorflow as tf

from common import files, folders
from common.errors import RunError
from engine.checkpoints import checkpoint_files, verify

BROKEN_DIR = "broken"
# Temporary files of an interrupted save: of checkpoints, of `checkpoint` and of graph.pbtxt.
_LEFTOVER = re.compile(r"model\.ckpt-\d+(\.meta)?(_temp|\.tmp).*|(checkpoint|graph\.pbtxt)\.tmp.*")


def recover(model_dir: str, keep_checkpoint_max: int = 0) -> str | None:
    """Returns the checkpoint that training resumes from; None if there is none.

    This is the newest valid one in `model_dir`. Newer ones are moved to `model_dir/broken`, and
    the file `checkpoint` is updated. The files of an interrupted save are removed if its checkpoint
    is incomplete; if it is complete, the save is finished.

    Args:
      model_dir: of the training.
      keep_checkpoint_max: number of checkpoints to keep after finishing a save; 0 for all.

    Raises:
      RunError: there are checkpoints, and all are invalid. Nothing is changed.
    """
    if not tf.io.gfile.isdir(model_dir):
        return None
    files.remove_leftovers(model_dir)
    checkpoints = checkpoint_files.list_steps(model_dir)
    state = _paths_in_state_file(model_dir)
    listed = {os.path.basename(path) for path in state}
    # The saver writes data, index, meta and the file `checkpoint`, and removes them in reverse.
    interrupted = [
        step
        for step, parts in checkpoints.items()
        if not parts & {"index", "meta"} and f"model.ckpt-{step}" not in listed
    ]
    broken, valid = {}, None
    for step in sorted(checkpoints.keys() - set(interrupted), reverse=True):
        path = checkpoint_files.path_for_step(model_dir, step)
        problem = verify.find_problem(path)
        if problem is None:
            valid = path
            break
        was_complete = "meta" in checkpoints[step] or f"model.ckpt-{step}" in listed
        if was_complete or verify.has_readable_index(path):
            broken[path] = problem
        else:
            interrupted.append(step)
    if broken and valid is None:
        path, problem = next(iter(broken.items()))
        raise RunError(
            f"none of {len(broken)} checkpoints in {model_dir} can be used; {path}: {problem}. "
            "Nothing was changed; use another --model_dir to start a new training"
        )
    for path, problem in broken.items():
        folder = os.path.join(model_dir, BROKEN_DIR)
        _move(path, folder)
        print(f"{path} cannot be used: {problem}. Moved to {folder}")
    if broken:
        print(f"resuming from {valid}")
    for step in interrupted:  # data files without a readable index are useless
        _remove(checkpoint_files.path_for_step(model_dir, step))
    for name in filter(_LEFTOVER.fullmatch, folders.names(model_dir)):
        path = os.path.join(model_dir, name)
        (tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)
    if valid is not None:
        newest = checkpoint_files.step_from_name(valid)
        steps = sorted(n for n, parts in checkpoints.items() if "index" in parts and n <= newest)
        if listed and os.path.basename(valid) not in listed and keep_checkpoint_max:
            for step in steps[:-keep_checkpoint_max]:
                _remove(checkpoint_files.path_for_step(model_dir, step))
            steps = steps[-keep_checkpoint_max:]
        paths = [checkpoint_files.path_for_step(model_dir, step) for step in steps]
        if state[-1:] != paths[-1:]:
            tf.compat.v1.train.update_checkpoint_state(
                model_dir, paths[-1], all_model_checkpoint_paths=paths
            )
    return valid


def _paths_in_state_file(model_dir):
    """Returns the paths in the file `checkpoint`, the newest last; [] if it cannot be read."""
    path = os.path.join(model_dir, "checkpoint")
    if not folders.is_file(path, or_missing=True):
        raise RunError(
            f"{path} is not a file, but TensorFlow keeps the list of checkpoints in it. Move it "
            "away"
        )
    try:
        state = tf.train.get_checkpoint_state(model_dir)
    except (tf.errors.OpError, ValueError):  # UnicodeDecodeError is a ValueError
        return []
    if state is None:
        return []
    return [*state.all_model_checkpoint_paths, state.model_checkpoint_path]


def _move(checkpoint, folder):
    tf.io.gfile.makedirs(folder)
    for path in checkpoint_files.list_files(checkpoint):
        tf.io.gfile.rename(path, os.path.join(folder, os.path.basename(path)), overwrite=True)


def _remove(checkpoint):
    for path in checkpoint_files.list_files(checkpoint):
        tf.io.gfile.remove(path)
