"""Verification of checkpoints: add a new rule to `find_problem` or `check_variables`."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from common import folders
from common.errors import UsageError
from engine.checkpoints import bundle, checkpoint_files, ema

# Larger variables, such as embedding tables, are read in blocks.
_MAX_BYTES = 2**26
_READ_ERRORS = (tf.errors.OpError, ValueError, IndexError, RuntimeError)


def find_problem(checkpoint: str, is_trained: bool = True) -> str | None:
    """Reads every variable of a checkpoint; returns the reason why it is invalid, or None.

    Needs memory for the largest variable up to `_MAX_BYTES`.

    Args:
      checkpoint: path.
      is_trained: True to require a global step, and finite values only.
    """
    for path in checkpoint_files.list_files(checkpoint):
        if not folders.is_file(path, or_missing=True):
            return f"{path} is not a file"
    try:
        reader = tf.train.load_checkpoint(checkpoint)
        shapes = reader.get_variable_to_shape_map()
        if is_trained and not _has_global_step(reader, shapes):
            return "its global_step is missing, or not an integer"
        large = {name for name in shapes if _num_bytes(reader, name) > _MAX_BYTES}
        for name in sorted(shapes.keys() - large):
            value = reader.get_tensor(name)
            if is_trained and not _is_finite(value):
                return f"{name} is not finite"
        for name, entry, path in bundle.entries(checkpoint) if large else ():
            if name in large:
                are_finite = [_is_finite(block) for block in bundle.blocks(entry, path)]
                if is_trained and not all(are_finite):
                    return f"{name} is not finite"
    except _READ_ERRORS as error:
        return " ".join(getattr(error, "message", str(error)).split())
    return None


def has_readable_index(checkpoint: str) -> bool:
    """Returns whether the index can be read; the data may be missing."""
    try:
        tf.train.load_checkpoint(checkpoint)
    except _READ_ERRORS:
        return False
    return True


def find_newest_valid(folder: str, is_trained: bool = True) -> str | None:
    """Returns the newest valid checkpoint in `folder`; None if it holds no checkpoint.

    Prints which newer ones are invalid. Changes nothing: a training may be running there.

    Args:
      folder: local or gs://; its checkpoints may have any names. The newest has the largest number
        at the end of its name.
      is_trained: see `find_problem`.

    Raises:
      UsageError: there are checkpoints, and all are invalid.
    """
    problems = []
    for path in reversed(checkpoint_files.list_paths(folder)):
        problem = find_problem(path, is_trained)
        if problem is None:
            for line in problems:
                print(f"{line}; using {path}", flush=True)
            return path
        problems.append(f"{path} cannot be used: {problem}")
    if problems:
        raise UsageError(f"no checkpoint in {folder} can be used: {problems[0]}")
    return None


def check_variables(checkpoint: str, params, training: bool) -> None:
    """Checks that the variables of the default graph can be restored from `checkpoint`.

    Returns without a check if the checkpoint is missing: a training that resumed from it may have
    replaced it by newer ones.

    Args:
      checkpoint: path.
      params: hyperparameters; `ema_decay` is read.
      training: False to check for the EMA of the weights, which evaluation restores.

    Raises:
      UsageError: a variable is missing or has another shape; names up to five of them.
    """
    if not tf.io.gfile.exists(f"{checkpoint}.index"):
        return
    stored = dict(tf.train.list_variables(checkpoint))
    _report_unused_averages(checkpoint, stored, params)
    lines = []
    for name, variable in sorted(ema.variables_to_restore(params, training).items()):
        shape = ema.saved_shape(variable)
        if name not in stored:
            lines.append(f"{name} {shape} is missing from the checkpoint")
        elif stored[name] != shape:
            lines.append(f"{name} is {stored[name]} in the checkpoint, {shape} in this model")
    if lines:
        raise UsageError(
            f"the checkpoint {checkpoint} does not match this model: {shorten(lines)}. Use the "
            "--model and --params that it was trained with (flags.cfg in its folder), another "
            "--model_dir, or --warm_start_from"
        )


def _report_unused_averages(checkpoint, stored, params):
    averages = [name for name in stored if ema.average_name("") in name]
    if averages and not params["ema_decay"] and is_first_replica():
        print(
            f"{checkpoint} has moving averages of {len(averages)} weights (EMA), but this run uses "
            "the weights: --params=ema_decay is 0"
        )


def is_first_replica() -> bool:
    """Returns True for one replica of a tf.distribute strategy: the one that prints."""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return tf.get_static_value(replica) == 0


def shorten(lines: list[str]) -> str:
    """Returns the first five lines, joined, and the number of the others."""
    return "; ".join(lines[:5]) + (f"; and {len(lines) - 5} more" if lines[5:] else "")


def _has_global_step(reader, shapes):
    name = tf.compat.v1.GraphKeys.GLOBAL_STEP
    return shapes.get(name) == [] and reader.get_variable_to_dtype_map()[name].is_integer


def _num_bytes(reader, name):
    dtype = reader.get_variable_to_dtype_map()[name]
    if dtype == tf.string:
        return 0
    return math.prod(reader.get_variable_to_shape_map()[name]) * dtype.size


def _is_finite(value):
    if isinstance(value, bytes):  # a scalar of type string
        return True
    if value.dtype == tf.bfloat16.as_numpy_dtype:
        value = value.astype(np.float32)
    return not np.issubdtype(value.dtype, np.floating) or bool(np.isfinite(value).all())
