"""Which checkpoints of a training are evaluated."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from fractions import Fraction

import tensorflow as tf

from common import files
from engine.hooks.progress import Clock

_FILE = "eval_schedule.json"


@dataclasses.dataclass(frozen=True)
class EvalSchedule:
    """The schedule of evaluations: every checkpoint, unless one of the attributes is set."""

    # Evaluations are at the multiples of this number, rounded up to whole steps.
    every_steps: Fraction = Fraction(0)
    every_minutes: float = 0.0  # minutes of training; the first checkpoint after them is evaluated

    def next_step(self, step: int) -> float:
        """Returns the first step of `every_steps` after `step`; infinity without it."""
        if not self.every_steps:
            return math.inf
        number = math.floor(step / self.every_steps)
        return next(
            found
            for found in (math.ceil((number + i) * self.every_steps) for i in (0, 1, 2))
            if found > step
        )


@dataclasses.dataclass(eq=False)
class EvalTimer:
    """Decides for one checkpoint after another whether it is evaluated.

    Minutes of training are counted across restarts, in `model_dir/eval_schedule.json`.
    """

    schedule: EvalSchedule
    model_dir: str  # folder of the training
    clock: Clock  # of training
    start_step: int = 0  # step of the checkpoint that the training resumes from

    def __post_init__(self):
        """Resumes the count of minutes."""
        self._last = self.start_step
        self._path = os.path.join(self.model_dir, _FILE)
        before = _read(self._path) if self.schedule.every_minutes else 0.0
        self._started = self.clock.seconds() - before

    def is_due(self, step: int) -> bool:
        """Returns whether to evaluate the checkpoint of `step`, later than the one before."""
        last, self._last = self._last, step
        if self.schedule.every_minutes:
            seconds = self.clock.seconds() - self._started
            self._write(seconds)
            return seconds >= 60 * self.schedule.every_minutes
        return not self.schedule.every_steps or self.schedule.next_step(last) <= step

    def restart(self) -> None:
        """Counts minutes from now; called after each evaluation."""
        self._started = self.clock.seconds()
        if self.schedule.every_minutes:
            self._write(0.0)

    def _write(self, seconds):
        with files.atomic_write(self._path) as file:
            file.write(json.dumps({"seconds_since_evaluation": round(seconds, 3)}) + "\n")


def _read(path):
    """Returns the seconds of training since the last evaluation; 0 if the file is invalid."""
    try:
        seconds = json.loads(files.read_text(path))["seconds_since_evaluation"]
    except (OSError, tf.errors.OpError, ValueError, TypeError, KeyError, RecursionError):
        return 0.0
    is_valid = type(seconds) in (int, float) and 0 <= seconds < 1e9
    return float(seconds) if is_valid else 0.0
