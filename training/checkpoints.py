"""Checkpoints: which one to use, whether it fits the model, warm start, and the best one kept."""

from __future__ import annotations

import json
import math
import os
import re

import tensorflow as tf

from common import files
from common.errors import UsageError
from training import averaging, ema

BEST_DIR = "best"
_BEST_FILE = "best.json"
# Metrics that are better the smaller they are; every other is better the larger it is.
_SMALLER_IS_BETTER = re.compile(
    r"loss|error|perplexity|(?:^|_)(?:mae|mape|mse|rmse|nll|cer|ter|wer)(?:$|_)"
)


def find(model_dir: str, which: str) -> str:
    """Returns the path of a checkpoint.

    Args:
      model_dir: where "latest", "best" and "average:N" are looked up.
      which: "latest", "best", "average:N", the mean of the newest N, which is written into
        `model_dir/average_N`, or the path of a checkpoint or of a folder of them.

    Raises:
      UsageError: there is none.
    """
    if which.startswith("average:"):
        return averaging.of_newest(model_dir, which.partition(":")[2])
    folders = {"latest": model_dir, "best": os.path.join(model_dir, BEST_DIR)}
    path = _resolve(folders.get(which, which))
    if path is None:
        hint = "--best_metric in training keeps one"
        if which != "best":
            found = tf.io.gfile.glob(os.path.join(model_dir, "*.index"))
            hint = ", ".join(sorted(name[: -len(".index")] for name in found))
        message = f"no checkpoint in {folders.get(which, which)}"
        raise UsageError(f"{message} ({hint})" if hint else message)
    return path


def latest(model_dir: str) -> str | None:
    """Returns the newest checkpoint in `model_dir`, or None."""
    return tf.train.latest_checkpoint(model_dir)


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


class BestCheckpoint:
    """Keeps a copy of the checkpoint with the best value of a metric in `model_dir/best`."""

    def __init__(self, model_dir: str, metric: str):
        """Goes on from what an earlier run kept there.

        Raises:
          UsageError: `model_dir/best` was kept by another metric.
        """
        self._dir = os.path.join(model_dir, BEST_DIR)
        self._metric = metric
        self._record = {
            "metric": metric,
            "value": math.nan,
            "step": -1,
            "last_step": -1,
            "evals_without_gain": 0,
        }
        path = os.path.join(self._dir, _BEST_FILE)
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path) as file:
                self._record.update(json.load(file))
        if self._record["metric"] != metric:
            raise UsageError(
                f"{self._dir} keeps the best checkpoint by '{self._record['metric']}', not by "
                f"--best_metric={metric}; use that, or move the folder away"
            )

    @property
    def evals_without_gain(self) -> int:
        """Evaluations since the best one."""
        return self._record["evals_without_gain"]

    @property
    def last_step(self) -> int:
        """Step of the checkpoint that was judged last; -1 if none was."""
        return self._record["last_step"]

    @property
    def wanted(self) -> str:
        """What is kept, for people."""
        size = "smallest" if _SMALLER_IS_BETTER.search(self._metric) else "largest"
        return f"the checkpoint of the {size} {self._metric}"

    def update(self, checkpoint: str, step: int, metrics) -> bool:
        """Copies `checkpoint` if its metric is the best yet; returns whether it was.

        NaN is never best. The old copy is removed last, so that there always is one. A checkpoint
        that is judged again is not counted again.

        Raises:
          UsageError: the metric is not among `metrics`.
          NotFoundError: `checkpoint` was removed meanwhile.
        """
        if self._metric not in metrics:
            scalars = sorted(name for name in metrics if name != "confusion_matrix")
            raise UsageError(f"--best_metric={self._metric} is none of {', '.join(scalars)}")
        value = float(metrics[self._metric])
        if not self._is_gain(value):
            is_new = step not in (self._record["step"], self.last_step)
            count = self.evals_without_gain + is_new
            self._write({"evals_without_gain": count, "last_step": step})
            return False
        self._copy(checkpoint)
        self._write({"value": value, "step": step, "last_step": step, "evals_without_gain": 0})
        return True

    def _is_gain(self, value):
        best = self._record["value"]
        if math.isnan(value) or math.isnan(best):
            return not math.isnan(value)
        return value < best if _SMALLER_IS_BETTER.search(self._metric) else value > best

    def _copy(self, checkpoint):
        tf.io.gfile.makedirs(self._dir)
        old = {name for name in tf.io.gfile.listdir(self._dir) if name.startswith("model.ckpt")}
        new = {os.path.basename(path) for path in tf.io.gfile.glob(f"{checkpoint}.*")}
        if f"{os.path.basename(checkpoint)}.index" not in new:
            raise tf.errors.NotFoundError(None, None, f"{checkpoint} is not there any more")
        for name in new:
            path = os.path.join(self._dir, name)
            source = os.path.join(os.path.dirname(checkpoint), name)
            tf.io.gfile.copy(source, f"{path}.partial", overwrite=True)
            tf.io.gfile.rename(f"{path}.partial", path, overwrite=True)
        # As tf.train's Saver writes it, and by name alone: model_dir may be moved.
        name = os.path.basename(checkpoint)
        with files.atomic_write(os.path.join(self._dir, "checkpoint")) as file:
            file.write(f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n')
        for name in old - new:
            tf.io.gfile.remove(os.path.join(self._dir, name))

    def _write(self, changes):
        self._record.update(changes)
        tf.io.gfile.makedirs(self._dir)
        with files.atomic_write(os.path.join(self._dir, _BEST_FILE)) as file:
            file.write(json.dumps(self._record, indent=1) + "\n")


def _resolve(path: str) -> str | None:
    if tf.io.gfile.isdir(path):
        return tf.train.latest_checkpoint(path)
    return path if tf.io.gfile.exists(f"{path}.index") else None


def _whole(path):
    return path.rstrip("/") if "://" in path else os.path.abspath(path)


def _shorten(lines):
    return "; ".join(lines[:5]) + (f"; and {len(lines) - 5} more" if lines[5:] else "")
