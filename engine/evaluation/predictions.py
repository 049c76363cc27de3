"""Runs a prediction: of `--mode=predict`, and of the host metrics of an evaluation."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from common import folders
from common.errors import UsageError
from common.names import counted
from engine.checkpoints import find
from engine.hooks import progress
from input_fns import DataError
from input_fns.core.predictions import PredictionWriter
from models.model import ModelError

_MAX_NAME_BYTES = 200  # below the limit of 255: a temporary name is longer


def check_output(path: str, writer: PredictionWriter) -> None:
    """Validates `--predict_output`.

    Raises:
      UsageError: it is a folder instead of a file or the reverse, has another ending, or its name
        is too long.
    """
    if not writer.endings:
        if folders.is_file(path):
            raise UsageError(
                f"--predict_output={path} is a file, but several files are written: give the name "
                "of a folder"
            )
        return
    if not path.endswith(tuple(writer.endings)):
        raise UsageError(f"--predict_output={path} must end in {' or '.join(writer.endings)}")
    if tf.io.gfile.isdir(path):
        raise UsageError(f"--predict_output={path} is a folder; give the name of a file in it")
    if len(os.fsencode(os.path.basename(path))) > _MAX_NAME_BYTES:
        raise UsageError(
            f"--predict_output={path}: its name is longer than {_MAX_NAME_BYTES} bytes"
        )


def batches(predict_fn: Callable, size: int, batch_size: int, checkpoint: str) -> Iterator[dict]:
    """Yields the predictions of batches, and shows the progress.

    Args:
      predict_fn: function from `hooks` and `checkpoint_path` to an iterator of them.
      size: number of examples.
      batch_size: global batch size.
      checkpoint: path of the checkpoint.

    Raises:
      ModelError: the outputs of a batch differ in their number of examples.
    """
    hooks = [progress.EvalProgressHook("predict", size, batch_size)]
    for batch in predict_fn(hooks=hooks, checkpoint_path=checkpoint):
        sizes = {name: len(values) for name, values in batch.items()}
        if len(set(sizes.values())) > 1:  # not known before: a shape is dynamic
            shown = ", ".join(f"{name} {count}" for name, count in sizes.items())
            raise ModelError(
                f"predictions: the outputs of a batch have different numbers of rows: {shown}. "
                "Return [batch, ...] for each name"
            )
        yield batch


def write(settings, predict_fn: Callable) -> None:
    """Writes the predictions of the evaluation split, or of the files of `--input`.

    Args:
      settings: `RunSettings`.
      predict_fn: see `batches`.

    Raises:
      DataError: the number of predictions differs from that of the examples.
    """
    prediction, checkpoint = settings.prediction, settings.checkpoint
    examples, writer = prediction.examples, prediction.writer
    name = "_".join(filter(None, ["predictions", examples.what, str(settings.start_step)]))
    name = find.add_label(name, settings.model_dir, checkpoint) + "".join(writer.endings[:1])
    path = prediction.output or os.path.join(settings.model_dir, name)
    predicted = batches(predict_fn, examples.size, prediction.batch_size, checkpoint)
    writer.write(path, _checked(predicted, examples))
    of_what = f" of {examples.what}" if examples.what else ""
    print(f"{counted(examples.count(), 'prediction')}{of_what} by {checkpoint}: {path}")


def _checked(predicted, examples):
    """Yields batches with the names of their examples; then checks the number of predictions."""
    names, written = None, 0
    for batch in predicted:
        size = len(next(iter(batch.values())))
        names = names or examples.names() or itertools.repeat(None)
        found = list(itertools.islice(names, size))
        yield batch if None in found else {"name": np.array(found), **batch}
        written += size
    if not examples.count():
        raise DataError(f"none of the {examples.size} examples of {examples.what} can be read")
    if written != examples.count():
        what = examples.what or "the input"
        raise DataError(f"{written} predictions, but {what} has {examples.count()} examples")
