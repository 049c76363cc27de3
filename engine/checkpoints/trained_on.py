"""Checks that a data set matches the one that a model was trained on.

A label is an index: if the classes are in another order, the model evaluates to an accuracy of 0
without an error. So `model_dir/trained_on.json` records the classes in order, the features of the
model's input, and a checksum of each asset, such as the vocabulary.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from typing import Any

import tensorflow as tf

from common import files, folders
from common.errors import UsageError
from input_fns.pipeline import Pipeline

FILE_NAME = "trained_on.json"


def properties(pipeline: Pipeline) -> dict[str, Any]:
    """Returns the properties of a data set that a model depends on, as JSON types."""
    target = pipeline.data.target
    return {
        "classes": list(pipeline.data.all_class_names),
        **({"target": [target.kind, *target.names]} if target else {}),
        "features": {
            name: [feature.dtype, *feature.shape]
            for name, feature in sorted(pipeline.features.items())
        },
        "assets": sorted(_sha256(path) for path in pipeline.assets),
        **pipeline.data.kind.preparation(),
    }


@dataclasses.dataclass(eq=False)
class TrainedOnHook(tf.estimator.SessionRunHook):
    """Writes trained_on.json at the start of a new training; keeps that of a resumed one.

    A new training may find the file of another one that ended before its first checkpoint.
    """

    model_dir: str
    pipeline: Pipeline  # of the training data
    resumes: bool  # True if the training starts at a checkpoint of model_dir

    def begin(self):
        """Writes the file after the graph has been built and checked."""
        path = os.path.join(self.model_dir, FILE_NAME)
        if not (self.resumes and folders.exists(path)):
            record = {"data_set": self.pipeline.data.name, **properties(self.pipeline)}
            with files.atomic_write(path) as file:
                file.write(json.dumps(record, indent=1) + "\n")


def read(folder: str) -> dict[str, Any] | None:
    """Returns the contents of trained_on.json in `folder`; None if it is missing.

    Raises:
      UsageError: it is invalid.
    """
    path = os.path.join(folder, FILE_NAME)
    if not folders.exists(path):
        return None
    invalid = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
    try:
        record = json.loads(files.read_text(path))
        is_valid = (
            isinstance(record["data_set"], str)
            and all(isinstance(name, str) for name in record["classes"])
            and all(len(feature) >= 1 for feature in record["features"].values())
            and all(isinstance(checksum, str) for checksum in record["assets"])
        )
    except (*folders.errors(path), *invalid):
        is_valid = False
    if not is_valid:
        raise UsageError(
            f"{path} cannot be read. If this is the data set that the model was trained on, remove "
            "the file: the next training writes it again"
        )
    return record


def check(checkpoint: str, model_dir: str, pipeline: Pipeline) -> None:
    """Compares the data of this run with the data that `checkpoint` was trained on.

    Args:
      checkpoint: path. trained_on.json is in its folder, or in the parent folder for `best` and
        averages; without one nothing is checked.
      model_dir: of this run.
      pipeline: the data of this run.

    Raises:
      UsageError: they differ, or trained_on.json is invalid.
    """
    folder = os.path.dirname(checkpoint)
    for candidate in (folder, os.path.dirname(folder)):
        record = read(candidate)
        if record is not None:
            break
    else:
        return
    ours = properties(pipeline)
    for key, describe in _DIFFERENCES.items():
        if key in record and record[key] != ours.get(key):
            is_own = candidate.rstrip("/") == model_dir.rstrip("/")
            flag = "" if is_own else f" (--checkpoint={checkpoint})"
            sizes = _image_sizes(record[key], ours[key]) if key == "features" else None
            if sizes:
                raise UsageError(
                    f"the model in {candidate}{flag} was trained on images of {sizes[0]}, and this "
                    f"run has images of {sizes[1]}. Use --image_size={sizes[0]}, or another "
                    f"--model_dir (the record is {FILE_NAME})"
                )
            raise UsageError(
                f"data set '{pipeline.data.name}' in {pipeline.data.data_dir} has other {key} than "
                f"'{record['data_set']}', which the model in {candidate}{flag} was trained on: "
                f"{describe(record[key], ours.get(key))}. Use a data set that was prepared with "
                f"the same options, or another --model_dir (the record is {FILE_NAME})"
            )


def _classes(trained, given):
    if sorted(trained) == sorted(given):
        i = next(i for i, (a, b) in enumerate(zip(trained, given)) if a != b)
        return f"label {i} was '{trained[i]}' and is now '{given[i]}'"
    missing = [name for name in trained if name not in given]
    new = [name for name in given if name not in trained]
    return (
        f"{len(trained)} classes in training, {len(given)} now; missing: {_list(missing)}; new: "
        f"{_list(new)}"
    )


def _target(trained, given):
    return f"{_list(trained)} in training; {_list(given or [])} now"


def _features(trained, given):
    def text(features):
        return ", ".join(f"{name} {dtype} {shape}" for name, (dtype, *shape) in features.items())

    return f"{text(trained)} in training; {text(given)} now"


def _image_sizes(trained, given):
    """Returns the sizes, "HEIGHTxWIDTH", if nothing but that of the image differs; else None."""
    if {**trained, "image": None} != {**given, "image": None} or not trained.get("image"):
        return None
    (dtype, *shape), (other_dtype, *other_shape) = trained["image"], given["image"]
    if dtype != other_dtype or len(shape) != 3 or shape[2:] != other_shape[2:]:
        return None
    return ["x".join(map(str, found[:2])) for found in (shape, other_shape)]


def _assets(trained, given):
    def text(checksums):
        return _list([checksum[:12] for checksum in checksums])

    return f"the vocabulary had SHA-256 {text(trained)} in training, {text(given)} now"


def _truncation(trained, given):
    return f"--truncate={trained} in training, {given} now"


def _accents(trained, given):
    return f"--strip_accents={str(trained).lower()} in training, {str(given).lower()} now"


_DIFFERENCES = {
    "classes": _classes,
    "target": _target,
    "features": _features,
    "assets": _assets,
    "truncation": _truncation,
    "accents": _accents,
}


def _list(names):
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if names[5:] else "") or "none"


def _sha256(path):
    with tf.io.gfile.GFile(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
