"""Retention of the best checkpoint of a training, in `model_dir/best`.

`best.json` records its step, metric and split. Checkpoints that a killed process left beside it are
ignored, and removed by the next run.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from common import files
from common.errors import UsageError
from engine.checkpoints import checkpoint_files, verify
from engine.checkpoints.checkpoint_files import BEST_DIR

_FILE = "best.json"
_EMPTY = {
    "metric": "",
    "direction": "",
    "split": "",
    "value": math.nan,
    "step": -1,
    "last_step": -1,
    "evals_without_gain": 0,
}


def find_best(model_dir: str) -> str | None:
    """Returns the best checkpoint of the training in `model_dir`; None if none is kept.

    Raises:
      UsageError: it is invalid.
    """
    folder = os.path.join(model_dir, BEST_DIR)
    record = _read(folder)
    if not record or record["step"] < 0:
        return verify.find_newest_valid(folder)  # copied by hand, or best.json is broken
    path = checkpoint_files.path_for_step(folder, record["step"])
    problem = verify.find_problem(path)
    if problem:
        raise UsageError(f"the best checkpoint {path} cannot be used: {problem}")
    return path


def read(model_dir: str) -> dict[str, Any]:
    """Returns metric, split, value and step of the best checkpoint; {} if none was compared."""
    record = _read(os.path.join(model_dir, BEST_DIR)) or _EMPTY
    return {n: record[n] for n in ("metric", "split", "value", "step")} if record["metric"] else {}


class BestCheckpoint:
    """Keeps a copy of the checkpoint with the best value of a metric in `model_dir/best`."""

    def __init__(
        self,
        model_dir: str,
        metric: str,
        direction: str,
        metrics_of_step: Callable[[int], dict[str, Any]] = lambda step: {},
        split: str = "",
    ):
        """Reads what an earlier run kept there. Only one process may do so; see `BEST_LOCK`.

        Args:
          model_dir: of the training.
          metric: its name.
          direction: "min" or "max": whether lower or higher is better.
          metrics_of_step: returns the metrics of the checkpoint of a step, {} if unknown; used if
            `best.json` cannot be read.
          split: split that is evaluated; "" if unknown.

        Raises:
          UsageError: `model_dir/best` was kept by another metric, in the other direction or by
            another split.
        """
        self._dir = os.path.join(model_dir, BEST_DIR)
        self._metric, self._direction = metric, direction
        self._new_record = {**_EMPTY, "metric": metric, "direction": direction, "split": split}
        self._record = dict(self._new_record)
        files.remove_leftovers(self._dir)
        if tf.io.gfile.exists(os.path.join(self._dir, _FILE)):
            self._record = _read(self._dir) or self._reconstruct(metrics_of_step)
        kept = self._record["metric"], self._record["direction"] or self._direction
        ours = self._metric, self._direction
        if kept != ours:
            length = 1 if kept[0] != ours[0] else 2
            raise UsageError(
                f"{self._dir} keeps the best checkpoint by '{':'.join(kept[:length])}', not by "
                f"--best_metric={':'.join(ours[:length])}. Use that metric, or move the folder away"
            )
        kept_split = self._record["split"] or split
        if split and kept_split != split:
            raise UsageError(
                f"{self._dir} keeps the best checkpoint by '{metric}' of the split "
                f"'{kept_split}', not of '{split}'. Evaluate that split first, or move the folder "
                "away"
            )
        self._record["split"] = kept_split
        if self._record["step"] >= 0:
            self._check_kept()

    @property
    def evals_without_gain(self) -> int:
        """Evaluations since the best one."""
        return self._record["evals_without_gain"]

    @property
    def last_step(self) -> int:
        """Step of the checkpoint that was compared last; -1 if none was."""
        return self._record["last_step"]

    @property
    def criterion(self) -> str:
        """Which checkpoint is kept: "the checkpoint with the largest accuracy on validation"."""
        size = "smallest" if self._direction == "min" else "largest"
        where = f" on {self._record['split']}" if self._record["split"] else ""
        return f"the checkpoint with the {size} {self._metric}{where}"

    def update(self, checkpoint: str, step: int, metrics) -> bool:
        """Copies `checkpoint` if its metric is the best so far; returns whether it is.

        NaN is never best. The old copy is removed last, so that there is always one. An evaluation
        that is repeated is counted once.

        Raises:
          UsageError: the metric is not a scalar of `metrics`.
          NotFoundError: `checkpoint` was removed in the meantime.
        """
        scalars = sorted(name for name, value in metrics.items() if np.ndim(value) == 0)
        if self._metric not in scalars:
            problem = "not a scalar" if self._metric in metrics else "unknown"
            raise UsageError(
                f"--best_metric={self._metric} is {problem}; valid: {', '.join(scalars)}"
            )
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
        return value < best if self._direction == "min" else value > best

    def _copy(self, checkpoint, step):
        source = checkpoint_files.list_files(checkpoint)
        if f"{checkpoint}.index" not in source:
            raise tf.errors.NotFoundError(None, None, f"{checkpoint} was removed")
        path = checkpoint_files.path_for_step(self._dir, step)
        for name in reversed(source):  # the index last: without it the others are ignored
            files.copy(name, path + name[len(checkpoint) :])
        # In the format of tf.train.Saver, with a relative path: model_dir may be moved.
        name = os.path.basename(path)
        with files.atomic_write(os.path.join(self._dir, "checkpoint")) as file:
            file.write(f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n')

    def _write(self, changes):
        self._record.update(changes)
        with files.atomic_write(os.path.join(self._dir, _FILE)) as file:
            file.write(json.dumps(self._record, indent=1) + "\n")

    def _remove_others(self):
        """Removes all checkpoints except the one in best.json."""
        for step in checkpoint_files.list_steps(self._dir):
            if step != self._record["step"]:
                path = checkpoint_files.path_for_step(self._dir, step)
                for name in checkpoint_files.list_files(path):
                    tf.io.gfile.remove(name)

    def _check_kept(self):
        """Discards the record of a best checkpoint that is invalid: the next one replaces it."""
        step = self._record["step"]
        problem = verify.find_problem(checkpoint_files.path_for_step(self._dir, step))
        if problem is None:
            self._remove_others()
            return
        print(
            f"the best checkpoint, of step {step}, cannot be used: {problem}. The best of the "
            "evaluations from now on is kept"
        )
        self._record.update(value=math.nan, step=-1)

    def _reconstruct(self, metrics_of_step):
        record = dict(self._new_record)
        path = os.path.join(self._dir, _FILE)
        step = checkpoint_files.newest_step(self._dir)
        value = metrics_of_step(step).get(self._metric) if step >= 0 else None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            print(f"{path} cannot be read: the best of the evaluations from now on is kept")
            return record
        print(f"{path} cannot be read: the kept checkpoint has {self._metric} {value:.4f}")
        return {**record, "value": float(value), "step": step, "last_step": step}


def _read(folder):
    """Returns the contents of best.json; None if it is missing or invalid."""
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
        and isinstance(record["split"], str)
        and record["direction"] in ("", "min", "max")
        and type(record["value"]) is float
        and all(type(count) is int and -1 <= count < 2**63 for count in counts)
    )
    return record if is_valid else None
