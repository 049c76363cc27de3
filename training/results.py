"""`result_<step>.json` in model_dir: what a run measured at a step, for people and programs."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import tensorflow as tf

from training import files


def write(model_dir: str, step: int, section: str, values: dict[str, Any]) -> None:
    """Writes `values` as the `section` "train" or "eval" of the result of `step`; others stay."""
    path = os.path.join(model_dir, f"result_{step}.json")
    sections = {}
    if tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path) as file:
            sections = json.load(file)
    sections.update(step=step, **{section: values})
    with files.atomic_write(path) as file:
        file.write(json.dumps(sections, indent=1, default=to_json) + "\n")


def to_json(value):
    """Returns a NumPy number, array or text as what `json` writes."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
