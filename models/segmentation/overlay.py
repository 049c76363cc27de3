"""Images with the masks of labels and predictions over them and a legend, as reports."""

from __future__ import annotations

import numpy as np
from PIL import Image

from common import drawing, pictures
from common.canvas import Canvas
from models.segmentation import iou

_TILE, _GAP, _LINE = 240, 4, 14  # pixels: width of an image, margin, height of a line of text
_COLUMNS = ("image", "labels", "prediction")


class Overlays:
    """Report that draws the first images, and those with the lowest IoU of the split.

    Each row has the image, the labels and the predictions over it. Ignored pixels keep their color.
    """

    num_examples = 4
    num_worst = 8

    def __init__(self, class_names):
        """Takes the class names, in the order of the labels."""
        self._class_names = class_names

    def score(self, features, labels, predictions):
        """Mean IoU of each image, float32 `[batch]`."""
        del features
        return iou.image_iou(labels["mask"], predictions["classes"], len(self._class_names))

    def write(self, evaluation):
        """Writes PNG files and images of TensorBoard; nothing without examples (on a TPU)."""
        first = (evaluation.features, evaluation.labels, evaluation.predictions)
        worst = evaluation.worst
        if first[0]:
            titles = [f"example {i}" for i in range(len(first[0]["image"]))]
            self._write(evaluation, "first_images", first, titles)
        if worst:
            titles = [
                f"example {index}: mean IoU {score:.3f}"
                for index, score in zip(worst["indices"], worst["scores"])
            ]
            examples = (worst["features"], worst["labels"], worst["predictions"])
            self._write(evaluation, "worst_images", examples, titles)
        return {}

    def text(self, evaluation):
        """Returns ""."""
        del evaluation
        return ""

    def _write(self, evaluation, name, examples, titles):
        features, labels, predictions = examples
        images = features["image"]
        if images.ndim != 4 or images.shape[-1] not in (1, 3):
            return
        masks = labels["mask"], predictions["classes"]
        drawn = draw(images, *masks, titles, self._class_names)
        encoded = pictures.to_png(drawn)
        evaluation.write_file(f"{name}_{evaluation.step}.png", encoded)
        evaluation.write_image(f"predictions/{name}", encoded)


def draw(images, labels, classes, titles, class_names) -> Image.Image:
    """Draws a row per image: the image, its labels, its predictions; below all a legend.

    Args:
      images: uint8 `[n, height, width, 1 or 3]`.
      labels: uint8 `[n, height, width]`, the class of each pixel, or `IGNORED_CLASS`.
      classes: integers `[n, height, width]`, the predicted classes.
      titles: a text per image.
      class_names: one for each class.
    """
    _, height, width, _ = images.shape
    tile = (_TILE, max(1, round(_TILE * height / width)))
    row_height = tile[1] + _LINE + _GAP
    occurring = [c for c in np.union1d(labels, classes).tolist() if c < len(class_names)]
    across, top = len(_COLUMNS) * (_TILE + _GAP), _LINE + len(images) * row_height
    height_of_all = top + drawing.legend_height(across, len(occurring)) + _GAP
    sheet = Image.new("RGB", (across, height_of_all), "white")
    canvas = Canvas(sheet)
    for column, name in enumerate(_COLUMNS):
        canvas.text((column * (_TILE + _GAP), 0), name, "black")
    for row, (image, label, predicted) in enumerate(zip(images, labels, classes)):
        y = _LINE + row * row_height
        canvas.text((0, y), titles[row], "black")
        plain = np.broadcast_to(image, (height, width, 3))
        covered = (drawing.blend(image, label), drawing.blend(image, predicted))
        for column, pixels in enumerate((plain, *covered)):
            drawn = Image.fromarray(np.ascontiguousarray(pixels))
            drawn = drawn.resize(tile, Image.Resampling.NEAREST)
            sheet.paste(drawn, (column * (_TILE + _GAP), y + _LINE))
    drawing.draw_legend(canvas, 0, top, across, [(c, class_names[c]) for c in occurring])
    return sheet
