"""Keeps the best checkpoint of a training in `model_dir/best`.

`best.json` there names it: whatever else a process that was killed has left in the folder is not
used, and is removed by the next one.
"""

from __future__ import annotations

import json
import math
import os
import re
from typing import Any, Callable

import tensorflow as tf

from common import files
from common.errors import UsageError
from engine.checkpoints import recovery

BEST_DIR = "best"
_FILE = "best.json"
_CHECKPOINT = re.compile(r"model\.ckpt-(\d{1,18})\.(index|meta|data-\d{5}-of-\d{5})")
# Metrics that are better the smaller they are; every other is better the larger it is.
_SMALLER_IS_BETTER = re.compile(
    r"loss|error|perplexity|(?:^|_)(?:mae|mape|mse|rmse|nll|cer|ter|wer)(?:$|_)"
)
_EMPTY = {"metric": "", "value": math.nan, "step": -1, "last_step": -1, "evals_without_gain": 0}


def find(model_dir: str) -> str | None:
    """Returns the best checkpoint of the training in `model_dir`; None if none is kept.

    Raises:
      UsageError: it cannot be read.
    """
    folder = os.path.join(model_dir, BEST_DIR)
    record = _read(folder)
    if not record or record["step"] < 0:
        return recovery.newest_readable(folder)  # copied by hand, or best.json is broken
    path = _path(folder, record["step"])
    problem = recovery.problem_of(path)
    if problem:
        raise UsageError(f"the best checkpoint {path} cannot be used: {problem}")
    return path


class BestCheckpoint:
    """Keeps a copy of the checkpoint with the best value of a metric in `model_dir/best`."""

    def __init__(
        self,
        model_dir: str,
        metric: str,
        metrics_of_step: Callable[[int], dict[str, Any]] = lambda step: {},
    ):
        """Continues what an earlier run kept there. No other process may keep one meanwhile.

        Args:
          model_dir: of the training.
          metric: its name.
          metrics_of_step: what the checkpoint of a step was evaluated to, {} if unknown. Replaces a
            `best.json` that cannot be read.

        Raises:
          UsageError: `model_dir/best` was kept by another metric.
        """
        self._dir = os.path.join(model_dir, BEST_DIR)
        self._metric = metric
        self._record = {**_EMPTY, "metric": metric}
        files.remove_leftovers(self._dir)
        if tf.io.gfile.exists(os.path.join(self._dir, _FILE)):
            self._record = _read(self._dir) or self._reconstruct(metrics_of_step)
        if self._record["metric"] != metric:
            raise UsageError(
                f"{self._dir} keeps the best checkpoint by '{self._record['metric']}', not by "
                f"--best_metric={metric}; use that, or move the folder away"
            )
        if self._record["step"] >= 0:
            self._check_kept()

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
        self._copy(checkpoint, step)
        self._write({"value": value, "step": step, "last_step": step, "evals_without_gain": 0})
        self._remove_others()
        return True

    def _is_gain(self, value):
        best = self._record["value"]
        if math.isnan(value) or math.isnan(best):
            return not math.isnan(value)
        return value < best if _SMALLER_IS_BETTER.search(self._metric) else value > best

    def _copy(self, checkpoint, step):
        source = recovery.files_of(checkpoint)
        if f"{checkpoint}.index" not in source:
            raise tf.errors.NotFoundError(None, None, f"{checkpoint} is not there any more")
        path = _path(self._dir, step)
        for name in reversed(source):  # the index last: it makes the others a checkpoint
            files.copy(name, path + name[len(checkpoint) :])
        # As tf.train's Saver writes it, and by name alone: model_dir may be moved.
        name = os.path.basename(path)
        with files.atomic_write(os.path.join(self._dir, "checkpoint")) as file:
            file.write(f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n')

    def _write(self, changes):
        self._record.update(changes)
        with files.atomic_write(os.path.join(self._dir, _FILE)) as file:
            file.write(json.dumps(self._record, indent=1) + "\n")

    def _remove_others(self):
        """Removes all checkpoints but the one that best.json names."""
        for name in tf.io.gfile.listdir(self._dir):
            found = _CHECKPOINT.fullmatch(name)
            if found and int(found[1]) != self._record["step"]:
                tf.io.gfile.remove(os.path.join(self._dir, name))

    def _check_kept(self):
        """Forgets a best checkpoint that cannot be read: the next one replaces it."""
        problem = recovery.problem_of(_path(self._dir, self._record["step"]))
        if problem is None:
            self._remove_others()
            return
        print(
            f"the best checkpoint, of step {self._record['step']}, cannot be used: {problem}. The "
            "best of the evaluations from here on is kept"
        )
        self._record.update(value=math.nan, step=-1)

    def _reconstruct(self, metrics_of_step):
        record = {**_EMPTY, "metric": self._metric}
        steps = [
            int(found[1])
            for found in map(_CHECKPOINT.fullmatch, tf.io.gfile.listdir(self._dir))
            if found and found[2] == "index"
        ]
        path = os.path.join(self._dir, _FILE)
        step = max(steps, default=-1)
        value = metrics_of_step(step).get(self._metric) if steps else None
        if not isinstance(value, float):
            print(f"{path} cannot be read: the best of the evaluations from here on is kept")
            return record
        print(f"{path} cannot be read: the kept checkpoint has {self._metric} {value:.4f}")
        return {**record, "value": value, "step": step, "last_step": step}


def _path(folder, step):
    return os.path.join(folder, f"model.ckpt-{step}")


def _read(folder):
    """Returns what best.json says; None if it is missing or broken."""
    try:
        record = {**_EMPTY, **json.loads(files.read_text(os.path.join(folder, _FILE)))}
    except (OSError, tf.errors.OpError, ValueError, TypeError, RecursionError):
        return None
    if type(record["value"]) is int and abs(record["value"]) < 2**53:
        record["value"] = float(record["value"])
    counts = (record["step"], record["last_step"], record["evals_without_gain"])
    is_valid = (
        record.keys() == _EMPTY.keys()
        and isinstance(record["metric"], str)
        and type(record["value"]) is float
        and all(type(count) is int and -1 <= count < 2**63 for count in counts)
    )
    return record if is_valid else None
