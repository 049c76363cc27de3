"""Requests for generated images, and the images as PNG files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image

from common import files, pictures
from common.errors import UsageError
from input_fns.core import predictions

INDEX, SHEET = "predictions.jsonl", "sheet.png"
COLUMNS, _MAX_SHEET = 10, 400  # images of a row of the sheet, and of the sheet


class Requests:
    """Images that a file asks for; implements `predictions.Examples`.

    Attributes:
      rows: `{"first", "second", "fraction", "class_id"}`; see `LatentPipeline.requests_input_fn`.
      columns: images of a row of the sheet.
    """

    what = ""
    reads_files = False

    def __init__(self, pipeline, rows: dict[str, np.ndarray], columns: int):
        """Takes the `LatentPipeline`."""
        self._pipeline, self.rows, self.columns = pipeline, rows, columns

    @property
    def size(self) -> int:
        """Number of images."""
        return len(self.rows["first"])

    @property
    def input_fn(self) -> Callable:
        """The input_fn."""
        return self._pipeline.requests_input_fn(self.rows)

    def names(self) -> None:
        """Returns None: requests have no names."""

    def count(self) -> int:
        """Returns `size`."""
        return self.size

    def lines(self) -> Iterator[dict]:
        """Yields the seed of each image, or its two seeds and the fraction between them."""
        for first, second, fraction in zip(*map(self.rows.get, ("first", "second", "fraction"))):
            seed = int(first) if first == second else [int(first), int(second)]
            yield {"seed": seed, **({} if first == second else {"fraction": float(fraction)})}


class ImageWriter:
    """Writes a PNG file for each image.

    At last it writes `predictions.jsonl` with the files, classes and seeds, and `sheet.png`, a grid
    of the first images.
    """

    endings = ()

    def __init__(self, pipeline, examples):
        """Takes the `LatentPipeline`, and the `Requests` or the examples of a split."""
        self._pipeline, self._examples = pipeline, examples

    def write(self, path: str, batches: Iterator[dict[str, np.ndarray]]) -> None:
        """Writes a folder; see `input_fns.core.predictions.PredictionWriter`.

        Raises:
          UsageError: the model does not predict `image`, float `[batch, height, width, channels]`.
        """
        written, sheet, asked = [], [], self._lines()
        for batch in batches:
            for pixels in _pixels(batch):
                file = f"{len(written):06d}.png"
                squeezed = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
                with files.atomic_write(os.path.join(path, file), "wb") as opened:
                    opened.write(pictures.to_png(Image.fromarray(squeezed)))
                written.append({"index": len(written), "file": file, **next(asked)})
                if len(sheet) < _MAX_SHEET:
                    sheet.append(pixels)
        with files.atomic_write(os.path.join(path, INDEX)) as opened:
            opened.writelines(json.dumps(line) + "\n" for line in written)
        drawn = pictures.grid(np.stack(sheet), getattr(self._examples, "columns", COLUMNS))
        with files.atomic_write(os.path.join(path, SHEET), "wb") as opened:
            opened.write(pictures.to_png(drawn))

    def _lines(self):
        """Yields the class and the seed of each image, as far as it has them."""
        names = self._pipeline.data.class_names
        if isinstance(self._examples, Requests):
            classes = self._examples.rows["class_id"]
            asked = self._examples.lines()
        else:
            batches = self._pipeline.host_examples(self._examples.what, 1024)
            examples = ((labels, len(features["image"])) for features, labels in batches)
            classes = (c for labels, n in examples for c in (labels if len(labels) else [0] * n))
            asked = iter(dict, None)
        for chosen, line in zip(classes, asked):
            named = {"class": int(chosen), "class_name": names[chosen]}
            yield {**(named if self._pipeline.has_classes else {}), **line}


def _pixels(batch):
    images = batch.get("image")
    if np.ndim(images) != 4:
        raise UsageError(
            f"--mode=predict writes images, but the model predicts {predictions.shapes(batch)}, "
            "not 'image' [batch, height, width, channels]"
        )
    return np.round(255 * np.clip(images, 0, 1)).astype(np.uint8)
