"""Writes the predictions of semantic segmentation: a PNG file of classes for each image."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import numpy as np
from PIL import Image

from common import files, pictures
from common.errors import UsageError
from input_fns.core import predictions

INDEX = "predictions.jsonl"


class ClassMapWriter:
    """Writes a grey PNG file for each image, in its original size, whose values are the classes.

    At last it writes `predictions.jsonl` with the names of the images and their files.
    """

    endings = ()

    def __init__(self, sizes: Iterator[tuple[int, int]]):
        """Takes the heights and widths of the images, in order."""
        self._sizes = sizes

    def write(self, path: str, batches: Iterator[dict[str, np.ndarray]]) -> None:
        """Writes a folder; see `input_fns.core.predictions.PredictionWriter`.

        Raises:
          UsageError: the model does not predict `classes`, int `[batch, height, width]`.
        """
        lines = []
        for batch in batches:
            maps = _classes(batch)
            for classes, name in zip(maps, batch.get("name", [None] * len(maps))):
                size = next(self._sizes)
                file = f"{len(lines):06d}.png"  # names of images are untrusted
                content = pictures.to_png(Image.fromarray(resize(classes, size).astype(np.uint8)))
                with files.atomic_write(os.path.join(path, file), "wb") as opened:
                    opened.write(content)
                line = {"index": len(lines), "name": name and str(name), "file": file}
                lines.append({**line, "height": size[0], "width": size[1]})
        with files.atomic_write(os.path.join(path, INDEX)) as opened:
            opened.writelines(json.dumps(line) + "\n" for line in lines)


def resize(classes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns a class map `[height, width]` scaled to `size` by nearest neighbor.

    The same pixels as `tf.image.resize`, and so as the SavedModel.
    """
    for axis, (new, old) in enumerate(zip(size, classes.shape)):
        centers = np.arange(new, dtype=np.float32) + np.float32(0.5)
        index = np.floor(centers * np.float32(np.float32(old) / np.float32(new))).astype(int)
        classes = np.take(classes, np.minimum(index, old - 1), axis)
    return classes


def _classes(batch):
    classes = batch.get("classes")
    if np.ndim(classes) != 3:
        raise UsageError(
            "--mode=predict writes class maps for segmentation, but the model predicts "
            f"{predictions.shapes(batch)}, not 'classes' [batch, height, width]"
        )
    return classes
