"""The first images of an evaluation with their predictions, a report for TensorBoard."""

from __future__ import annotations

import numpy as np
from PIL import Image

from common import pictures
from common.canvas import Canvas

_COLUMNS, _ROWS = 6, 4
_TILE, _LINE = 112, 14  # pixels: the side of an image, the height of a line of text
_MAX_NAME = 13  # characters


class Gallery:
    """Report that draws the first images; the class names of wrong predictions are red."""

    num_examples = _COLUMNS * _ROWS

    def __init__(self, class_names):
        """Takes the class names, in the order of the labels."""
        self._class_names = class_names

    def write(self, evaluation):
        """Writes one image; nothing for features that are not images of 1 or 3 channels."""
        images, labels = evaluation.features.get("image"), evaluation.labels
        probabilities = evaluation.predictions.get("probabilities")
        if images is None or images.ndim != 4 or images.shape[-1] not in (1, 3):
            return {}
        if probabilities is None or np.ndim(labels) != 1 or not len(labels):
            return {}
        if probabilities.shape[1:] != (len(self._class_names),):
            return {}
        drawn = draw(images, labels, probabilities, self._class_names)
        evaluation.write_image("predictions/first_images", pictures.to_png(drawn))
        return {}

    def text(self, evaluation):
        """Returns ""."""
        del evaluation
        return ""


def draw(images, labels, probabilities, class_names) -> Image.Image:
    """Draws a grid of images, each above its most probable class; errors are red, with the label.

    Args:
      images: numbers `[n, height, width, 1 or 3]`; the maximum becomes white.
      labels: ints `[n]`.
      probabilities: floats `[n, num_classes]`.
      class_names: one for each class.
    """
    height = _TILE + 2 * _LINE
    rows = -(-len(images) // _COLUMNS)
    image = Image.new("RGB", (_COLUMNS * _TILE, rows * height), "white")
    canvas = Canvas(image)
    scaled = np.maximum(images, 0) * (255 / max(1, np.max(images, initial=0)))
    scaled = np.broadcast_to(scaled, (*images.shape[:-1], 3)).astype(np.uint8)
    for i, (pixels, label, fractions) in enumerate(zip(scaled, labels, probabilities)):
        left, top = i % _COLUMNS * _TILE, i // _COLUMNS * height
        side = _TILE - 4
        tile = Image.fromarray(pixels).resize((side, side), Image.Resampling.NEAREST)
        image.paste(tile, (left + 2, top + 2))
        likeliest = int(np.argmax(fractions))
        is_right = likeliest == label
        caption = f"{class_names[likeliest][:_MAX_NAME]} {fractions[likeliest]:.2f}"
        canvas.text((left + 2, top + _TILE), caption, "black" if is_right else "red")
        if not is_right:
            truth = f"is {class_names[label][:_MAX_NAME]}"
            canvas.text((left + 2, top + _TILE + _LINE), truth, "red")
    return image
