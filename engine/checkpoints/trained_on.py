"""Checks that a model is used with the kind of data that it was trained on.

A label is only a number: with classes in another order a model evaluates to an accuracy of 0
without an error. So `model_dir/trained_on.json` records the classes in their order, the features as
the model sees them, and a checksum of each asset, such as the vocabulary.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import tensorflow as tf

from common import files
from common.errors import UsageError
from input_fns.pipeline import Pipeline

FILE_NAME = "trained_on.json"


def properties(pipeline: Pipeline) -> dict[str, Any]:
    """Returns what must not change between the training and the use of a model, as JSON has it."""
    return {
        "classes": list(pipeline.data.class_names),
        "features": {
            name: [feature.dtype, *feature.shape]
            for name, feature in sorted(pipeline.features.items())
        },
        "assets": sorted(_sha256(path) for path in pipeline.assets),
    }


class TrainedOnHook(tf.estimator.SessionRunHook):
    """Records the data of a training; of one that is resumed they are recorded already."""

    def __init__(self, model_dir: str, pipeline: Pipeline):
        """Takes the data that are trained on."""
        self._model_dir, self._pipeline = model_dir, pipeline

    def begin(self):
        """Writes the record when the graph is built, and so after every check of it."""
        path = os.path.join(self._model_dir, FILE_NAME)
        if not tf.io.gfile.exists(path):
            record = {"data_set": self._pipeline.data.name, **properties(self._pipeline)}
            with files.atomic_write(path) as file:
                file.write(json.dumps(record, indent=1) + "\n")


def check(checkpoint: str, model_dir: str, pipeline: Pipeline) -> None:
    """Compares the data of this run with those that `checkpoint` was trained on.

    Args:
      checkpoint: path. Its folder holds the record, or the one above, as of `best` and averages.
      model_dir: of this run.
      pipeline: the data of this run.

    Raises:
      UsageError: they differ; names both.
    """
    folder = os.path.dirname(checkpoint)
    for candidate in (folder, os.path.dirname(folder)):
        record = _read(candidate)
        if record is not None:
            break
    else:
        return  # trained before there were records
    ours = properties(pipeline)
    names = f"'{record['data_set']}' there, '{pipeline.data.name}' here"
    for key, describe in _DIFFERENCES.items():
        if record[key] != ours[key]:
            flag = "" if _same(candidate, model_dir) else f" of --checkpoint={checkpoint}"
            raise UsageError(
                f"the model in {candidate}{flag} was trained on other {key} than this data set "
                f"has ({names}): {describe(record[key], ours[key])}. Use a data set that was "
                f"prepared alike, or train in another --model_dir ({FILE_NAME} is the record)"
            )


def _classes(there, here):
    if sorted(there) == sorted(here):
        i = next(i for i, (a, b) in enumerate(zip(there, here)) if a != b)
        return f"label {i} is '{there[i]}' there and '{here[i]}' here"
    missing = [name for name in there if name not in here]
    unknown = [name for name in here if name not in there]
    return (
        f"{len(there)} classes there, {len(here)} here; only there: {_list(missing)}; only here: "
        f"{_list(unknown)}"
    )


def _features(there, here):
    def text(features):
        return ", ".join(f"{name} {dtype} {shape}" for name, (dtype, *shape) in features.items())

    return f"{text(there)} there; {text(here)} here"


def _assets(there, here):
    def text(checksums):
        return _list([checksum[:12] for checksum in checksums])

    return f"the vocabulary has the SHA-256 {text(there)} there and {text(here)} here"


_DIFFERENCES = {"classes": _classes, "features": _features, "assets": _assets}


def _list(names):
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if names[5:] else "") or "none"


def _read(folder):
    """Returns the record in `folder`; None if there is none that can be read."""
    path = os.path.join(folder, FILE_NAME)
    if not tf.io.gfile.exists(path):
        return None
    try:
        record = json.loads(files.read_text(path))
        is_valid = (
            isinstance(record["data_set"], str)
            and all(isinstance(name, str) for name in record["classes"])
            and all(len(feature) >= 1 for feature in record["features"].values())
            and all(isinstance(checksum, str) for checksum in record["assets"])
        )
    except (tf.errors.OpError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise UsageError(
            f"{path} cannot be read. Remove it if this is the data set that the model was trained "
            "on: the next training writes it again"
        )
    return record


def _sha256(path):
    with tf.io.gfile.GFile(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _same(folder, other):
    return folder.rstrip("/") == other.rstrip("/")
