"""Pictures of `--input` with their predictions drawn in (`--overlay_dir`)."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image

from common import drawing, files
from common.canvas import Canvas
from common.names import counted
from input_fns.core.predictions import Examples, PredictionWriter
from input_fns.image import class_maps

# The longest side of a drawn picture, in pixels: texts are 10 pixels high.
_MIN_SIDE, _MAX_SIDE = 480, 1280
_MAX_STEM = 80  # characters of the name of a picture
MIN_SCORE = 0.3  # objects with lower scores are not drawn


class OverlayWriter:
    """Draws the predictions of each batch into their pictures before another writer gets it.

    Attributes:
      endings, class_names: those of the other writer.
    """

    def __init__(self, writer: PredictionWriter, folder: str, examples: Examples, draw: Callable):
        """Draws nothing yet.

        Args:
          writer: the other writer.
          folder: folder for the pictures.
          examples: `convert.file_input.ImageInput`.
          draw: `draw(picture, scale, row)` returns an RGB picture, which is `scale` times the
            original one, with the predictions of an example, `{name: array}`.
        """
        self.endings, self.class_names = writer.endings, getattr(writer, "class_names", ())
        self._writer, self._folder, self._examples, self._draw = writer, folder, examples, draw

    def write(self, path: str, batches: Iterator[dict[str, np.ndarray]]) -> None:
        """Writes a file or folder, and the pictures."""
        self._writer.write(path, self._drawn(batches))

    def _drawn(self, batches):
        count, found = 0, self._examples.pictures()
        for batch in batches:
            for values in zip(*batch.values()):
                row = dict(zip(batch, values))
                self._write(count, str(row["name"]), next(found), row)
                count += 1
            yield batch
        print(f"{counted(count, 'image')} with the predictions drawn in: {self._folder}")

    def _write(self, number, name, picture, row):
        longest = max(picture.size)
        scale = min(max(longest, _MIN_SIDE), _MAX_SIDE) / longest
        size = tuple(max(1, round(side * scale)) for side in picture.size)
        drawn = self._draw(picture.resize(size), scale, row)
        encoded = io.BytesIO()
        drawn.save(encoded, "JPEG", quality=90, subsampling=0)  # lines of colors
        # Names of images are untrusted, and may be equal in two folders.
        stem = re.sub(r"[^\w.-]", "_", os.path.splitext(os.path.basename(name))[0])[:_MAX_STEM]
        path = os.path.join(self._folder, f"{number:06d}_{stem}.jpg")
        with files.atomic_write(path, "wb") as opened:
            opened.write(encoded.getvalue())


def draw_objects(picture, scale, row, class_names, masks=()) -> Image.Image:
    """Returns a picture with the objects of at least `MIN_SCORE`.

    Args:
      picture: RGB picture.
      scale: its size divided by that of the original.
      row: `boxes` `[n, 4]` in pixels of the original, `scores`, `classes`, `[n]`, and
        `num_detections`.
      class_names: class names.
      masks: bool `[height, width]` of the first objects, of any size; () without masks.
    """
    count = int(row["num_detections"])
    shown = np.flatnonzero(row["scores"][:count] >= MIN_SCORE)
    classes = row["classes"][shown]
    texts = [f"{class_names[c]} {s:.2f}" for c, s in zip(classes, row["scores"][shown])]
    if len(masks):
        picture = drawing.draw_masks(picture, [masks[i] for i in shown], classes)
    return drawing.draw_boxes(picture, row["boxes"][shown] * scale, classes, texts)


def draw_classes(picture, classes, class_names) -> Image.Image:
    """Returns a picture half covered by the colors of the classes of its pixels, with a legend.

    Args:
      picture: RGB picture.
      classes: integers `[height, width]`, of any size.
      class_names: class names.
    """
    resized = class_maps.resize(classes, picture.size[::-1])
    occurring = [(c, class_names[c]) for c in np.unique(resized).tolist()]
    height = drawing.legend_height(picture.width, len(occurring))
    drawn = Image.new("RGB", (picture.width, picture.height + height), "white")
    drawn.paste(Image.fromarray(drawing.blend(np.asarray(picture), resized)))
    drawing.draw_legend(Canvas(drawn), 0, picture.height, picture.width, occurring)
    return drawn
