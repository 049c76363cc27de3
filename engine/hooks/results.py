"""What a run leaves in model_dir for people and programs: `flags.cfg`, `result_<step>.json`."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import numpy as np
import tensorflow as tf

from common import files, locks
from engine.checkpoints import find
from engine.hooks.progress import Clock, global_step

# Of the sections that are not a dict.
_TYPES = {"step": int, "export": str}


def write(model_dir: str, step: int, section: str, values: dict[str, Any]) -> None:
    """Writes `values` as a section, such as "train", of the result of `step`; others stay."""
    tf.io.gfile.makedirs(model_dir)
    with locks.briefly(model_dir):  # an evaluation may write another section at this moment
        sections = {**read(model_dir, step), "step": step, section: values}
        lines = [
            f'"{key}": {json.dumps(value, default=to_json)}' for key, value in sections.items()
        ]
        with files.atomic_write(_path(model_dir, step)) as file:
            file.write("{" + ",\n ".join(lines) + "}\n")


def read(model_dir: str, step: int) -> dict[str, Any]:
    """Returns the sections of the result of `step`; none if there is no result, or a broken one."""
    path = _path(model_dir, step)
    if not tf.io.gfile.exists(path):
        return {}
    try:
        sections = json.loads(files.read_text(path))
    except (ValueError, RecursionError):
        sections = None
    if not isinstance(sections, dict):
        print(f"{path} cannot be read; the next run of that step writes it again", flush=True)
        return {}
    return {key: value for key, value in sections.items() if type(value) is _TYPES.get(key, dict)}


def of_evaluation(model_dir: str, checkpoint: str) -> dict[str, Any]:
    """Returns what was found when `checkpoint` was evaluated; nothing if it was not."""
    sections = read(model_dir, find.read_step(checkpoint))
    found = sections.get(evaluation_section(model_dir, checkpoint), {})
    is_own = not find.folder_label(model_dir, checkpoint)  # `best` holds copies of the others
    return found if is_own or found.get("checkpoint") == checkpoint else {}


def evaluation_section(model_dir: str, checkpoint: str) -> str:
    """Returns the name of the section, and of the folder, with the evaluation of `checkpoint`."""
    return find.add_label("eval", model_dir, checkpoint)


def evaluation_dir(model_dir: str, checkpoint: str | None) -> str:
    """Returns the folder with the events of the evaluation of `checkpoint`; None is one to come."""
    name = evaluation_section(model_dir, checkpoint) if checkpoint else "eval"
    return os.path.join(model_dir, name)


def _path(model_dir, step):
    return os.path.join(model_dir, f"result_{step}.json")


def to_json(value):
    """Returns a NumPy number, array or text as what `json` writes."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def complete(model_dir: str, step: int, skipped_records: int) -> None:
    """Writes the "train" section of a training that was killed after its last checkpoint."""
    if "train" not in read(model_dir, step):
        write(model_dir, step, "train", {"start_step": step, "skipped_records": skipped_records})


class TrainRecordHook(tf.estimator.SessionRunHook):
    """Writes `flags.cfg` when training starts, and the "train" section of the result at its end.

    One hook serves a whole training, be it in one session or in many with evaluations in between.
    """

    def __init__(
        self,
        model_dir: str,
        batch_size: int,
        skipped_records: int,
        clock: Clock,
        started: float,
        flagfile: str,
    ):
        """Initializes the hook.

        Args:
          model_dir: folder of the results.
          batch_size: global batch size.
          skipped_records: number of records of the split that are not read.
          clock: a `Clock`.
          started: time.monotonic() at the start of the process.
          flagfile: content of flags.cfg.
        """
        self._model_dir = model_dir
        self._batch_size = batch_size
        self._skipped_records = skipped_records
        self._clock = clock
        self._started = started
        self._flagfile = flagfile
        self._start_step = None
        self._start_up = None
        self._counted_from = None
        self._steps = 0
        self._seconds = 0.0

    def begin(self):
        """Comes when the graph is built, and so after every check of it."""
        with files.atomic_write(os.path.join(self._model_dir, "flags.cfg")) as file:
            file.write(self._flagfile)

    def after_create_session(self, session, coord):
        """Notes the step that the first session was restored to."""
        if self._start_step is None:
            self._start_step = global_step(session)
        self._counted_from = None

    def before_run(self, run_context):
        """Counts a session from its first run, but the very first session without that run."""
        if self._counted_from is None and self._start_up is not None:
            self._count_from(run_context.session)

    def after_run(self, run_context, run_values):
        """Notes the end of the very first run, and of the last."""
        self._last_step_at = self._clock.seconds()
        if self._start_up is None:
            self._start_up = time.monotonic() - self._started
            self._count_from(run_context.session)

    def end(self, session):
        """Writes how long it took."""
        self._step = global_step(session)
        step, seconds = self._counted_from
        self._steps += self._step - step
        self._seconds += self._last_step_at - seconds
        record = {
            "start_step": self._start_step,
            "seconds_to_first_step": round(self._start_up, 3),
            "seconds_after_first_step": round(self._seconds, 3),
            "examples_per_second": round(self._rate(), 1),
            "skipped_records": self._skipped_records,
        }
        write(self._model_dir, self._step, "train", record)

    def _count_from(self, session):
        self._counted_from = global_step(session), self._clock.seconds()

    def describe(self) -> str:
        """Returns the same as a line."""
        line = (
            f"trained steps {self._start_step} to {self._step}: the first after "
            f"{self._start_up:.1f} s of start-up"
        )
        if not self._steps:
            return line
        return f"{line}, the others in {self._seconds:.1f} s, {self._rate():,.0f} examples/s"

    def _rate(self):
        return self._steps * self._batch_size / self._seconds if self._steps else 0.0
