"""What the files of a model_dir say about a run; a missing or broken file is a note."""

from __future__ import annotations

import collections
import json
import operator
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from common import flagfiles
from engine.checkpoints import best as checkpoints_best
from engine.cli import hparams

# Sections of result_<step>.json and folders of evaluations; see `results.evaluation_name`.
EVALUATION = r"eval(?:_(.+?))?/?"
# Evaluation metric -> training summary of the same quantity, drawn in one plot.
_SAME = {"average_loss": "loss"}
# Exceptions of reading a missing, truncated or invalid file.
BROKEN = (
    OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError,
    tf.errors.OpError,
)  # fmt: skip
_NOTE_LENGTH = 300
# Flags that are of a folder, not of a training.
_PATHS = ("model_dir", "data_dir", "export_dir", "flagfile")


class Run:
    """The files of a model_dir.

    Attributes:
      folder: the model_dir.
      name: of the run on the page.
      flags_text: contents of flags.cfg.
      flags: `{name: value}` of flags.cfg, each of --params by its own name; the last one counts.
      results: contents of the result files, oldest first; each has a `step`.
      notes: what cannot be shown, and why.
    """

    def __init__(self, folder: str, name: str):
        """Reads flags.cfg and the result files."""
        self.folder, self.name, self.notes = folder, name, []
        self.flags_text = self.attempt("flags.cfg", lambda: read(folder, "flags.cfg"), "")
        self.flags = self.attempt("flags.cfg", lambda: _flags(self.flags_text), {})
        found = [
            self.attempt(match[0], lambda match=match: _result(folder, match), None)
            for match in matches(folder, r"result_([0-9]{1,18})\.json")
        ]
        self.results = sorted(filter(None, found), key=lambda result: result["step"])

    def attempt(self, name: str, function: Callable[[], Any], default: Any) -> Any:
        """Returns `function()`; if a file is missing or broken, adds a note, returns `default`."""
        try:
            return function()
        except BROKEN as error:
            reason = " ".join(str(error).split())[:_NOTE_LENGTH]
            self.notes.append(f"{name}: {type(error).__name__}: {reason}")
            return default

    @property
    def evaluations(self) -> tuple[int, dict[str, dict]]:
        """(step, `{section: numbers}`) of the last step that was evaluated; (0, {}) without."""
        evaluated = [(result["step"], _evaluations(result)) for result in reversed(self.results)]
        return next(filter(operator.itemgetter(1), evaluated), (0, {}))

    @property
    def best_evaluations(self) -> tuple[int, dict[str, dict]]:
        """`evaluations` of the best checkpoint, with its metric in the names of the sections."""
        best = checkpoints_best.read(self.folder)
        for result in self.results if best else ():
            if result["step"] == best["step"]:
                found = _evaluations(result)
                return result["step"], {f"{k} (best {best['metric']})": found[k] for k in found}
        return 0, {}

    def scalars(self) -> dict[str, dict[str, dict[int, float]]]:
        """Returns `{phase: {tag: {step: value}}}` of the event files."""
        found = {"training": self._scalars(self.folder)}
        for match in matches(self.folder, EVALUATION):
            phase = f"evaluation {match[1] or ''}".rstrip()
            found[phase] = self._scalars(os.path.join(self.folder, match[0].rstrip("/")))
        return found

    def _scalars(self, directory):
        found = collections.defaultdict(dict)

        def read_events(path):
            for event in tf.compat.v1.train.summary_iterator(path):
                for value in event.summary.value:
                    number = _scalar(value)
                    if number is not None:
                        found[_SAME.get(value.tag, value.tag)][event.step] = number

        for match in matches(directory, r"events\..*"):
            path = os.path.join(directory, match[0])
            # The last record of a running or killed run may be truncated.
            self.attempt(f"the end of {path}", lambda path=path: read_events(path), None)
        return found


def read(*path: str) -> str:
    """Returns the text of a file."""
    with tf.io.gfile.GFile(os.path.join(*path)) as file:
        return file.read()


def matches(directory: str, pattern: str) -> list[re.Match]:
    """Returns the matches of the file names in a folder, sorted."""
    # Not a glob, which would expand "[" in paths.
    names = sorted(tf.io.gfile.listdir(directory)) if tf.io.gfile.isdir(directory) else []
    return list(filter(None, map(re.compile(pattern).fullmatch, names)))


def different_flags(runs: list[Run]) -> dict[str, list[str]]:
    """Returns `{flag or hyperparameter: its value in each run}` of those that are not all equal."""
    of_runs = [run.flags for run in runs]
    names = dict.fromkeys(name for flags in of_runs for name in flags if name not in _PATHS)
    values = {name: [flags.get(name, "") for flags in of_runs] for name in names}
    return {name: found for name, found in values.items() if len(set(found)) > 1}


def _evaluations(result):
    return {key: value for key, value in result.items() if re.fullmatch(EVALUATION, key) and value}


def _flags(text):
    found = {}
    for name, value in flagfiles.pairs(text):
        if name == "params":
            found.update(pair for _, pair in hparams.pairs([value]))
        else:
            found[name] = value
    return found


def _result(folder, match):
    result = json.loads(read(folder, match[0]))
    if not isinstance(result, dict):
        raise ValueError("it is not a JSON object")
    sections = {key: value for key, value in result.items() if isinstance(value, dict)}
    return {**sections, "step": int(match[1])}


def _scalar(value):
    if value.HasField("simple_value"):
        return value.simple_value
    if value.tensor.dtype != tf.float32.as_datatype_enum:
        return None
    number = tf.make_ndarray(value.tensor)
    return float(number) if np.ndim(number) == 0 else None
