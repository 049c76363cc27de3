"""Writes the predictions of semantic segmentation: a PNG file of classes for each image."""

from __future__ import annotations

import itertools
import json
import os

import numpy as np
from PIL import Image

from common import files, pictures
from common.errors import UsageError
from engine.checkpoints import find
from engine.hooks import progress
from input_fns import DataError
from input_fns.dataset_info import DatasetInfo

INDEX = "predictions.jsonl"


def are_predicted(data: DatasetInfo) -> bool:
    """Whether `--mode=predict` writes class maps for a data set."""
    return data.kind.name == "annotations" and data.kind.task == "segmentation"


def resize(classes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns a class map `[height, width]` scaled to `size` by nearest neighbor.

    The same pixels as `tf.image.resize`, and so as the SavedModel.
    """
    for axis, (new, old) in enumerate(zip(size, classes.shape)):
        centers = np.arange(new, dtype=np.float32) + np.float32(0.5)
        index = np.floor(centers * np.float32(np.float32(old) / np.float32(new))).astype(int)
        classes = np.take(classes, np.minimum(index, old - 1), axis)
    return classes


def write_files(estimator, settings, predict_input_fn) -> None:
    """Writes class maps of the evaluation split, or of the images of `--input`.

    The folder gets a grey PNG file for each image, in its original size, whose values are the
    classes, and at last `predictions.jsonl` with the names of the images and their files.

    Raises:
      UsageError: the model does not predict `classes`, int `[batch, height, width]`.
      DataError: the number of predictions differs from that of the examples.
    """
    given, split = settings.prediction.file_input, settings.evaluation.split
    what = split if given is None else "input"
    name = f"predictions_{what}_{settings.start_step}"
    name = find.add_label(name, settings.model_dir, settings.checkpoint)
    folder = settings.prediction.output or os.path.join(settings.model_dir, name)
    count = settings.dataset.split(what).num_examples if given is None else len(given.paths)
    batches = estimator.predict(
        predict_input_fn,
        hooks=[progress.EvalProgressHook("predict", count, settings.prediction.batch_size)],
        checkpoint_path=settings.checkpoint,
        yield_single_examples=False,
    )
    if given is None:
        names, sizes = settings.pipeline.file_names(split), settings.pipeline.image_sizes(split)
    else:
        names, sizes = given.names, given.sizes  # grow while predictions are read
    lines = []
    for classes in itertools.chain.from_iterable(map(_classes, batches)):
        number = len(lines)
        if given is None:
            image_name, size = next(names) if names else None, next(sizes)
        else:
            image_name, size = names[number], sizes[number]
        file = f"{number:06d}.png"  # names of images are untrusted
        content = pictures.to_png(Image.fromarray(resize(classes, size).astype(np.uint8)))
        with files.atomic_write(os.path.join(folder, file), "wb") as opened:
            opened.write(content)
        line = {"index": number, "name": image_name, "file": file}
        lines.append({**line, "height": size[0], "width": size[1]})
    expected = count if given is None else len(given.names)  # without broken images
    if len(lines) != expected or not lines:
        raise DataError(f"{len(lines)} predictions, but {what} has {expected or count} examples")
    with files.atomic_write(os.path.join(folder, INDEX)) as opened:
        opened.writelines(json.dumps(line) + "\n" for line in lines)
    print(f"{len(lines)} class maps of {what} by {settings.checkpoint}: {folder}")


def _classes(batch):
    classes = batch.get("classes")
    if np.ndim(classes) != 3:
        found = ", ".join(f"{name} {list(values.shape)}" for name, values in batch.items())
        raise UsageError(
            "--mode=predict writes class maps for segmentation, but the model predicts "
            f"{found}, not 'classes' [batch, height, width]"
        )
    return classes
