"""Images with the masks of labels and predictions over them and a legend, as reports."""

from __future__ import annotations

import colorsys

import numpy as np
from PIL import Image

from common import pictures
from common.canvas import Canvas
from common.constants import IGNORED_CLASS
from models.segmentation import iou

_TILE, _GAP, _LINE = 240, 4, 14  # pixels: width of an image, margin, height of a line of text
_MAX_NAME, _LEGEND_COLUMN = 22, 160  # characters; pixels
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
    columns = len(_COLUMNS) * (_TILE + _GAP) // _LEGEND_COLUMN
    top = _LINE + len(images) * row_height
    size = (len(_COLUMNS) * (_TILE + _GAP), top + _LINE * -(-len(occurring) // columns) + _GAP)
    sheet = Image.new("RGB", size, "white")
    canvas = Canvas(sheet)
    for column, name in enumerate(_COLUMNS):
        canvas.text((column * (_TILE + _GAP), 0), name, "black")
    for row, (image, label, predicted) in enumerate(zip(images, labels, classes)):
        y = _LINE + row * row_height
        canvas.text((0, y), titles[row], "black")
        plain = np.broadcast_to(image, (height, width, 3))
        for column, pixels in enumerate((plain, blend(image, label), blend(image, predicted))):
            drawn = Image.fromarray(np.ascontiguousarray(pixels))
            drawn = drawn.resize(tile, Image.Resampling.NEAREST)
            sheet.paste(drawn, (column * (_TILE + _GAP), y + _LINE))
    for i, number in enumerate(occurring):
        x, y = i % columns * _LEGEND_COLUMN, top + i // columns * _LINE
        canvas.rectangle((x, y + 2, x + 10, y + 12), tuple(color(number).tolist()))
        canvas.text((x + 14, y), class_names[number][:_MAX_NAME], "black")
    return sheet


def blend(image, classes):
    """Returns the image half covered by the color of each pixel's class, uint8 `[h, w, 3]`.

    Args:
      image: uint8 `[height, width, 1 or 3]`.
      classes: integers `[height, width]`; pixels of `IGNORED_CLASS` are not covered.
    """
    colors = np.stack([color(number) for number in range(IGNORED_CLASS + 1)])
    image = np.broadcast_to(image, (*classes.shape, 3)).astype(np.uint16)
    mixed = (image + colors[classes]) // 2
    return np.where((classes == IGNORED_CLASS)[..., np.newaxis], image, mixed).astype(np.uint8)


def color(number: int) -> np.ndarray:
    """Returns the color of a class, uint8 `[3]`; neighbors in number differ most."""
    hue = number * 0.61803 % 1  # the golden ratio spreads any number of hues evenly
    value = 1.0 if number % 2 else 0.7
    return np.round(255 * np.array(colorsys.hsv_to_rgb(hue, 0.9, value))).astype(np.uint8)
