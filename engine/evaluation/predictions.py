"""The predictions of every example of a split, in order, in a file."""

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

_MOST_BYTES_OF_NAME = 200  # of 255, and a temporary name is longer


def check_output(path: str) -> None:
    """Checks that a file can have the name `path`, before anything is predicted.

    Raises:
      UsageError: it is a folder, or too long.
    """
    if tf.io.gfile.isdir(path):
        raise UsageError(f"--predict_output={path} is a folder; give the name of a file in it")
    if len(os.fsencode(os.path.basename(path))) > _MOST_BYTES_OF_NAME:
        raise UsageError(
            f"--predict_output={path}: its name is longer than {_MOST_BYTES_OF_NAME} bytes"
        )


def write_file(estimator, job, predict_input_fn) -> None:
    """Writes what `job.checkpoint` predicts for each example of `job.eval_split`, or of `--input`.

    Raises:
      DataError: there are not as many predictions as examples.
    """
    given = job.picture_input
    what = job.eval_split if given is None else "input"
    name = f"predictions_{what}_{job.start_step}"
    name = find.add_label(name, job.model_dir, job.checkpoint)
    path = job.predict_output or os.path.join(job.model_dir, f"{name}.jsonl")
    size = job.dataset.split(what).num_examples if given is None else len(given.paths)
    batches = estimator.predict(
        predict_input_fn,
        hooks=[progress.PassHook("predict", size, job.predict_batch_size)],
        checkpoint_path=job.checkpoint,
        yield_single_examples=False,
    )
    names = job.pipeline.file_names(what) if given is None else iter(given.names)
    batches = (_with_names(batch, job.dataset.class_names, names) for batch in batches)
    first = next(batches, None)
    if first is None:
        raise DataError(f"none of the {size} examples of {what} can be read")
    batches = itertools.chain([first], batches)
    write = _write_npz if path.endswith(".npz") else _write_jsonl
    with files.atomic_write(path, "wb") as file:
        written = write(file, batches)
        size = size if given is None else len(given.names)  # of pictures that are not broken
        if written != size:
            raise DataError(f"{written} predictions, but {what} has {size} examples")
    print(f"{written} predictions of {what} by {job.checkpoint}: {path}")


def _with_names(batch, class_names, file_names):
    # As the export does: a TPU computes numbers, the names are put on afterwards.
    if "classes" in batch and class_names:
        batch["class_names"] = np.array(class_names)[batch["classes"]]
    if file_names is None:
        return batch
    size = len(next(iter(batch.values())))
    return {"name": np.array(list(itertools.islice(file_names, size))), **batch}


def _write_jsonl(file, batches):
    written = 0
    for batch in batches:
        columns = {name: values.tolist() for name, values in batch.items()}
        for row in zip(*columns.values()):
            line = {"index": written, **dict(zip(columns, row))}
            file.write(json.dumps(line, default=results.to_json).encode() + b"\n")
            written += 1
    return written


def _write_npz(file, batches):
    batches = list(batches)
    columns = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    archive = io.BytesIO()  # a gs:// file cannot seek, as an archive must
    np.savez(archive, **columns)
    file.write(archive.getvalue())
    return len(next(iter(columns.values())))
