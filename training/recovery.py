"""The checkpoint that a training goes on from: the newest that can be trusted.

By itself tf.estimator takes the newest as it is, begins anew in the same folder when the file
`checkpoint` is gone, and never goes back to an older one.
"""

from __future__ import annotations

import os
import re

import numpy as np
import tensorflow as tf

from common.errors import RunError

BROKEN_DIR = "broken"
_CHECKPOINT = re.compile(r"model\.ckpt-(\d+)\.(index|meta|data-\d{5}-of-\d{5})")
# What an interrupted write leaves behind: of the saver, and of the files beside.
_LEFTOVER = re.compile(r"model\.ckpt-\d+(\.meta)?(_temp|\.tmp).*|(checkpoint|graph\.pbtxt)\.tmp.*")


def newest_good(model_dir: str) -> str | None:
    """Returns the newest checkpoint in `model_dir` that is whole and finite; None if there is none.

    Newer ones are moved into `model_dir/broken`, and the file `checkpoint` names those that are
    left. What an interrupted write left behind is removed.

    Raises:
      RunError: there are checkpoints, and none is good. They stay where they are.
    """
    if not tf.io.gfile.isdir(model_dir):
        return None
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(model_dir)]
    steps = sorted({int(found[1]) for found in map(_CHECKPOINT.fullmatch, names) if found})
    broken = {}
    good = None
    for step in reversed(steps):
        path = _path(model_dir, step)
        problem = problem_of(path)
        if problem is None:
            good = path
            break
        broken[path] = problem
    if broken and good is None:
        path, problem = next(iter(broken.items()))
        raise RunError(
            f"none of {len(broken)} checkpoints in {model_dir} can be used; {path}: {problem}. "
            "Nothing was changed; another --model_dir begins anew"
        )
    for path, problem in broken.items():
        _set_aside(model_dir, path)
        print(f"{path} cannot be used: {problem}. Moved to {os.path.join(model_dir, BROKEN_DIR)}")
    if broken:
        print(f"going on from {good}")
    for name in filter(_LEFTOVER.fullmatch, names):
        _remove(os.path.join(model_dir, name))
    if good is not None:
        _name_newest(model_dir, [step for step in steps if _path(model_dir, step) not in broken])
    return good


def problem_of(checkpoint: str) -> str | None:
    """Returns what is wrong with a checkpoint after reading all of it; None if it is good."""
    try:
        reader = tf.train.load_checkpoint(checkpoint)
        names = sorted(reader.get_variable_to_shape_map())
        if tf.compat.v1.GraphKeys.GLOBAL_STEP not in names:
            return "it has no global_step"
        for name in names:
            if not _is_finite(reader.get_tensor(name)):
                return f"{name} is not finite"
    except (tf.errors.OpError, ValueError, IndexError, RuntimeError) as error:
        return " ".join(getattr(error, "message", str(error)).split())
    return None


def _is_finite(value):
    if value.dtype == tf.bfloat16.as_numpy_dtype:
        value = value.astype(np.float32)
    return not np.issubdtype(value.dtype, np.floating) or bool(np.isfinite(value).all())


def _path(model_dir, step):
    return os.path.join(model_dir, f"model.ckpt-{step}")


def _set_aside(model_dir, checkpoint):
    folder = os.path.join(model_dir, BROKEN_DIR)
    tf.io.gfile.makedirs(folder)
    # The index first: without it the rest is no checkpoint.
    for path in sorted(tf.io.gfile.glob(f"{checkpoint}.*"), key=lambda p: not p.endswith(".index")):
        tf.io.gfile.rename(path, os.path.join(folder, os.path.basename(path)), overwrite=True)


def _name_newest(model_dir, steps):
    """Writes the file `checkpoint`, unless it names the newest of `steps` already."""
    paths = [_path(model_dir, step) for step in steps]
    if _named(model_dir) != paths[-1]:
        tf.compat.v1.train.update_checkpoint_state(
            model_dir, paths[-1], all_model_checkpoint_paths=paths
        )


def _named(model_dir):
    try:
        return tf.train.latest_checkpoint(model_dir)
    except (tf.errors.OpError, ValueError):  # a UnicodeDecodeError is one, too
        return None


def _remove(path):
    if tf.io.gfile.isdir(path):
        tf.io.gfile.rmtree(path)
    else:
        tf.io.gfile.remove(path)
