"""Records of a run in model_dir: `flags.cfg` and `result_<step>.json`."""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any

import numpy as np
import tensorflow as tf

from common import files, locks
from engine.checkpoints import find
from engine.hooks import system
from engine.hooks.progress import global_step

# Types of the sections that are not dicts.
_TYPES = {"step": int, "export": str}


def write(model_dir: str, step: int, section: str, values: dict[str, Any]) -> None:
    """Writes one section, such as "train", of `result_<step>.json`; keeps the other sections."""
    tf.io.gfile.makedirs(model_dir)
    with locks.briefly(model_dir):  # another process may write another section
        sections = {**read(model_dir, step), "step": step, section: values}
        lines = [
            f'"{key}": {json.dumps(value, default=to_json)}' for key, value in sections.items()
        ]
        with files.atomic_write(_path(model_dir, step)) as file:
            file.write("{" + ",\n ".join(lines) + "}\n")


def read(model_dir: str, step: int) -> dict[str, Any]:
    """Returns the sections of `result_<step>.json`; {} if the file is missing or invalid."""
    path = _path(model_dir, step)
    if not tf.io.gfile.exists(path):
        return {}
    try:
        sections = json.loads(files.read_text(path))
    except (ValueError, RecursionError):
        sections = None
    if not isinstance(sections, dict):
        print(f"{path} is invalid; the next run of that step overwrites it", flush=True)
        return {}
    return {key: value for key, value in sections.items() if type(value) is _TYPES.get(key, dict)}


def evaluation_name(settings, split: str, checkpoint: str | None = None) -> str:
    """Returns the name of the folder, section and TensorBoard run of an evaluation.

    "eval" for the split that a training evaluates, "eval_SPLIT" for others. `_first_N` marks an
    evaluation of the first N examples, and a label a checkpoint from elsewhere.

    Args:
      settings: `RunSettings`.
      split: name of the split.
      checkpoint: path; None for one of model_dir.
    """
    evaluation, parts = settings.evaluation, ["eval"]
    if split != evaluation.own_split:
        parts.append(split.replace("/", "_"))
    if evaluation.is_partial(settings.dataset, split):
        parts.append(f"first_{evaluation.max_examples}")
    name = "_".join(parts)
    return find.add_label(name, settings.model_dir, checkpoint) if checkpoint else name


def read_evaluation(settings, split: str, checkpoint: str) -> dict[str, Any]:
    """Returns the section of the evaluation of `checkpoint`; {} if it was not evaluated."""
    sections = read(settings.model_dir, find.read_step(checkpoint))
    section = sections.get(evaluation_name(settings, split, checkpoint), {})
    # Checkpoints outside of model_dir itself, as in `best`, may be of the same step.
    is_in_model_dir = not find.folder_label(settings.model_dir, checkpoint)
    is_same = is_in_model_dir or section.get("checkpoint") == checkpoint
    return section if is_same and section.get("split") == split else {}


def evaluated_split(model_dir: str) -> str:
    """Returns the split of the newest section "eval" in `model_dir`; "" if there is none."""
    names = tf.io.gfile.listdir(model_dir) if tf.io.gfile.isdir(model_dir) else []
    found = filter(None, (re.fullmatch(r"result_([0-9]{1,18})\.json", name) for name in names))
    for step in sorted((int(match[1]) for match in found), reverse=True):
        split = read(model_dir, step).get("eval", {}).get("split")
        if isinstance(split, str):
            return split
    return ""


def _path(model_dir, step):
    return os.path.join(model_dir, f"result_{step}.json")


def to_json(value):
    """Converts bytes and NumPy values for `json.dump(default=to_json)`."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def complete(model_dir: str, step: int, skipped_records: int) -> None:
    """Adds the "train" section if training was killed after it saved its last checkpoint."""
    if "train" not in read(model_dir, step):
        write(model_dir, step, "train", {"start_step": step, "skipped_records": skipped_records})


class TrainRecordHook(tf.estimator.SessionRunHook):
    """Writes `flags.cfg` when training starts, and the "train" section when it ends.

    One hook is used for all sessions of a training, with evaluations in between.
    """

    def __init__(self, settings, state):
        """Initializes the hook with `RunSettings` and `TrainingState`."""
        self._settings, self._clock, self._started = settings, state.clock, state.started
        self._start_step = None
        self._system = ""
        self._start_up = None
        self._counted_from = None
        self._steps = 0
        self._seconds = 0.0

    def begin(self):
        """Writes flags.cfg, after the graph was built and validated."""
        with files.atomic_write(os.path.join(self._settings.model_dir, "flags.cfg")) as file:
            file.write(self._settings.flagfile)

    def after_create_session(self, session, coord):
        """Records the step from which the first session starts, and what it runs on."""
        if self._start_step is None:
            self._start_step = global_step(session)
            self._system = system.describe(session)
        self._counted_from = None

    def before_run(self, run_context):
        """Starts to count steps and seconds, except for the first step of training (start-up)."""
        if self._counted_from is None and self._start_up is not None:
            self._count_from(run_context.session)

    def after_run(self, run_context, run_values):
        """Records when the first and the latest step ended."""
        self._last_step_at = self._clock.seconds()
        if self._start_up is None:
            self._start_up = time.monotonic() - self._started
            self._count_from(run_context.session)

    def end(self, session):
        """Writes the "train" section."""
        self._step = global_step(session)
        step, seconds = self._counted_from
        self._steps += self._step - step
        self._seconds += self._last_step_at - seconds
        record = {
            "start_step": self._start_step,
            "seconds_to_first_step": round(self._start_up, 3),
            "seconds_after_first_step": round(self._seconds, 3),
            "examples_per_second": round(self._rate(), 1),
            "skipped_records": self._settings.train.skipped_records,
            "system": self._system,
        }
        write(self._settings.model_dir, self._step, "train", record)

    def _count_from(self, session):
        self._counted_from = global_step(session), self._clock.seconds()

    def describe(self) -> str:
        """Returns the record as one line."""
        line = (
            f"trained steps {self._start_step} to {self._step}: the first after "
            f"{self._start_up:.1f} s of start-up"
        )
        if not self._steps:
            return line
        return f"{line}, the others in {self._seconds:.1f} s, {self._rate():,.0f} examples/s"

    def _rate(self):
        examples = self._steps * self._settings.train.batch_size
        return examples / self._seconds if examples else 0.0
