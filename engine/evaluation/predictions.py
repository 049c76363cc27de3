"""Writes the predictions of a split or of files, in order, to a file."""

from __future__ import annotations

import io
import itertools
import json
import os

import numpy as np
import tensorflow as tf

from common import files
from common.errors import UsageError
from engine.checkpoints import find
from engine.hooks import progress, results
from input_fns import DataError

_MAX_NAME_BYTES = 200  # below the limit of 255: a temporary name is longer


def check_output(path: str) -> None:
    """Validates `--predict_output`.

    Raises:
      UsageError: it is a folder, or its name is too long.
    """
    if tf.io.gfile.isdir(path):
        raise UsageError(f"--predict_output={path} is a folder; give the name of a file in it")
    if len(os.fsencode(os.path.basename(path))) > _MAX_NAME_BYTES:
        raise UsageError(
            f"--predict_output={path}: its name is longer than {_MAX_NAME_BYTES} bytes"
        )


def write_file(estimator, settings, predict_input_fn) -> None:
    """Writes the predictions of the evaluation split, or of the files of `--input`.

    Raises:
      DataError: the number of predictions differs from that of the examples.
    """
    given = settings.prediction.file_input
    what = settings.evaluation.split if given is None else "input"
    name = f"predictions_{what}_{settings.start_step}"
    name = find.add_label(name, settings.model_dir, settings.checkpoint)
    path = settings.prediction.output or os.path.join(settings.model_dir, f"{name}.jsonl")
    size = settings.dataset.split(what).num_examples if given is None else len(given.paths)
    batches = estimator.predict(
        predict_input_fn,
        hooks=[progress.EvalProgressHook("predict", size, settings.prediction.batch_size)],
        checkpoint_path=settings.checkpoint,
        yield_single_examples=False,
    )
    names = settings.pipeline.file_names(what) if given is None else iter(given.names)
    batches = (_with_names(batch, settings.pipeline, names) for batch in batches)
    first = next(batches, None)
    if first is None:
        raise DataError(f"none of the {size} examples of {what} can be read")
    batches = itertools.chain([first], batches)
    write = _write_npz if path.endswith(".npz") else _write_jsonl
    with files.atomic_write(path, "wb") as file:
        written = write(file, batches)
        size = size if given is None else len(given.names)  # without broken files
        if written != size:
            raise DataError(f"{written} predictions, but {what} has {size} examples")
    print(f"{written} predictions of {what} by {settings.checkpoint}: {path}")


def _with_names(batch, pipeline, file_names):
    # A TPU computes class indices and tokens; strings are added on the host, as in a SavedModel.
    class_names = pipeline.data.all_class_names
    if class_names and (np.ndim(batch.get("classes")) == 1 or "num_detections" in batch):
        batch["class_names"] = np.array(class_names)[batch["classes"]]
    if "tokens" in batch and hasattr(pipeline, "to_text"):
        batch["text"] = np.array(pipeline.to_text(batch["tokens"]))
    if file_names is None:
        return batch
    size = len(next(iter(batch.values())))
    return {"name": np.array(list(itertools.islice(file_names, size))), **batch}


def _write_jsonl(file, batches):
    written = 0
    for batch in batches:
        columns = {name: values.tolist() for name, values in batch.items()}
        for row in zip(*columns.values()):
            line = _without_padding({"index": written, **dict(zip(columns, row))})
            file.write(json.dumps(line, default=results.to_json).encode() + b"\n")
            written += 1
    return written


def _without_padding(line):
    """Returns a line with the lists of detections cut at `num_detections`."""
    count = line.get("num_detections")
    if count is None:
        return line
    return {name: v[:count] if isinstance(v, list) else v for name, v in line.items()}


def _write_npz(file, batches):
    batches = list(batches)
    columns = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    archive = io.BytesIO()  # np.savez seeks, which gs:// files do not support
    np.savez(archive, **columns)
    file.write(archive.getvalue())
    return len(next(iter(columns.values())))
