"""Checkpoints: which one to use, whether it fits the model, and warm start."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator

import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import averaging, best, ema, recovery
from engine.checkpoints.best import BEST_DIR

_POLL_SECS = 1.0


def find(model_dir: str, which: str) -> str:
    """Returns the path of a checkpoint.

    Args:
      model_dir: where "latest", "best" and "average:N" are looked up.
      which: "latest", "best", "average:N", the mean of the newest N, which is written into
        `model_dir/average_N`, or the path of a checkpoint or of a folder of them.

    A broken checkpoint of a folder is skipped with a line.

    Raises:
      UsageError: there is none, or none that can be used.
    """
    if which.startswith("average:"):
        return averaging.of_newest(model_dir, which.partition(":")[2])
    folder = {"latest": model_dir, "best": os.path.join(model_dir, BEST_DIR)}.get(which, which)
    if which == "best":
        path = best.find(model_dir)
    elif tf.io.gfile.isdir(folder):
        path = recovery.newest_readable(folder)
    else:
        path = _usable(folder)
    if path is None:
        hint = "--best_metric in training keeps one"
        if which != "best":
            hint = ", ".join(recovery.in_order(model_dir))
        message = f"no checkpoint in {folder}"
        raise UsageError(f"{message} ({hint})" if hint else message)
    return path


def find_warm_start(path: str) -> str:
    """Returns the checkpoint at `path`, or the newest in the folder `path`, of any program.

    Raises:
      UsageError: there is none, or none that can be read.
    """
    is_folder = tf.io.gfile.isdir(path)
    found = recovery.newest_readable(path, is_trained=False) if is_folder else _usable(path, False)
    if found is None:
        raise UsageError(f"--warm_start_from: no checkpoint in {path}")
    return found


def latest(model_dir: str) -> str | None:
    """Returns the newest checkpoint in `model_dir`, or None."""
    return tf.train.latest_checkpoint(model_dir)


def arriving(model_dir: str, timeout_secs: float) -> Iterator[str]:
    """Yields the newest usable checkpoint of a training, whenever there is a newer one.

    Ends when none has come for `timeout_secs` seconds. A checkpoint that cannot be read is being
    written, or broken; it is skipped until its files change.
    """
    last, unusable, waited_since = None, {}, time.monotonic()
    while time.monotonic() - waited_since <= timeout_secs:
        for path in reversed(recovery.in_order(model_dir)):
            if path == last:
                break
            with contextlib.suppress(tf.errors.NotFoundError):  # removed by the training
                state = [tf.io.gfile.stat(name).length for name in recovery.files_of(path)]
                if state == unusable.get(path):
                    continue
                if recovery.problem_of(path) is None:
                    last = path
                    yield path
                    waited_since = time.monotonic()
                    break
                unusable[path] = state
        time.sleep(_POLL_SECS)


def step_of(checkpoint: str | None) -> int:
    """Returns the global step that a checkpoint was saved at; 0 for None."""
    if checkpoint is None:
        return 0
    return int(tf.train.load_variable(checkpoint, tf.compat.v1.GraphKeys.GLOBAL_STEP))


def label(model_dir: str, checkpoint: str) -> str:
    """Returns "" for a checkpoint of the training in `model_dir`, else the name of its folder.

    Of another one, such as an average, the global step may be one of the training's too: what is
    written about it has this in its name.
    """
    folder = _whole(os.path.dirname(checkpoint))
    if folder in (_whole(model_dir), _whole(os.path.join(model_dir, BEST_DIR))):
        return ""
    return os.path.basename(folder)


def labelled(name: str, model_dir: str, checkpoint: str) -> str:
    """Returns `name` with the `label` of `checkpoint` behind it, if it has one."""
    return "_".join(filter(None, [name, label(model_dir, checkpoint)]))


def check_fits(checkpoint: str, params, training: bool) -> None:
    """Checks that the variables of the default graph can be restored from `checkpoint`.

    A training that went on from it may have removed it since, for newer ones of its own: then
    there is nothing to check.

    Raises:
      UsageError: it is of another model, hyperparameters or optimizer; names what differs.
    """
    if not tf.io.gfile.exists(f"{checkpoint}.index"):
        return
    stored = dict(tf.train.list_variables(checkpoint))
    lines = []
    for name, variable in sorted(ema.restored_variables(params, training).items()):
        shape = variable.shape.as_list()
        if name not in stored:
            lines.append(f"{name} {shape} is not in it")
        elif stored[name] != shape:
            lines.append(f"{name} is {stored[name]} in it, {shape} in this model")
    if lines:
        raise UsageError(
            f"the checkpoint {checkpoint} is of a different model: {_shorten(lines)}. Use the "
            "--model and --params that it was trained with (flags.cfg beside it), another "
            "--model_dir, or --warm_start_from"
        )


def warm_start(checkpoint: str, include: str, variables: list[tf.Variable]) -> None:
    """Lets `variables` of the default graph begin with the values of `checkpoint`.

    To be called when the graph is complete; on a TPU in the scaffold_fn.

    Takes the variables whose whole name in the graph matches the regular expression `include` and
    that `checkpoint` holds in the same shape; prints which are left out. Averages of the weights
    begin where their variables do. The global step starts at 0.

    Args:
      checkpoint: path.
      include: regular expression.
      variables: those of the model. Without the optimizer's: a new training does not begin with
        the momentum of an old one.

    Raises:
      UsageError: no variable is left to be taken.
    """
    stored = dict(tf.train.list_variables(checkpoint))
    taken, mismatched, missing = {}, [], []
    for variable in variables:
        name, shape = variable.op.name, variable.shape.as_list()
        if name == tf.compat.v1.GraphKeys.GLOBAL_STEP or not re.fullmatch(include, name):
            continue
        if name not in stored:
            missing.append(name)
        elif stored[name] != shape:
            mismatched.append(f"{name} ({stored[name]} there, {shape} here)")
        else:
            taken[name] = variable
    if not taken:
        raise UsageError(
            f"--warm_start_from={checkpoint} --warm_start_include={include} matches no variable of "
            f"this model; the checkpoint holds {_shorten(sorted(stored))}"
        )
    tf.compat.v1.train.init_from_checkpoint(checkpoint, taken)
    averages = {name: ema.average_of(variable) for name, variable in taken.items()}
    averages = {name: average for name, average in averages.items() if average is not None}
    if averages:
        tf.compat.v1.train.init_from_checkpoint(checkpoint, averages)
    print(f"warm start: {len(taken)} variables from {checkpoint}")
    for reason, names in (("of another shape", mismatched), ("not in it", missing)):
        if names:
            print(f"warm start: {len(names)} left as they are, {reason}: {_shorten(names)}")


def _usable(path, is_trained=True):
    """Returns `path` if it is a checkpoint, None if there is no such file."""
    if not tf.io.gfile.exists(f"{path}.index"):
        return None
    problem = recovery.problem_of(path, is_trained)
    if problem:
        raise UsageError(f"the checkpoint {path} cannot be used: {problem}")
    return path


def _whole(path):
    return path.rstrip("/") if "://" in path else os.path.abspath(path)


def _shorten(lines):
    return "; ".join(lines[:5]) + (f"; and {len(lines) - 5} more" if lines[5:] else "")
