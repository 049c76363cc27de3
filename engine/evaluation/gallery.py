"""The first images of an evaluation beside what the model takes them for, in TensorBoard."""

from __future__ import annotations

import io

import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw

from engine.hooks import summaries

_COLUMNS, _ROWS = 6, 4
_TILE, _LINE = 112, 14  # pixels: the side of an image, the height of a line of text
_MAX_NAME = 13  # characters


def hooks(features, labels, predict, class_names, directory: str) -> list[GalleryHook]:
    """Returns the hooks of an evaluation graph: none but for classifiers of images.

    Args:
      features: of a batch; "image" `[batch, height, width, 1 or 3]`, and "weight", float32
        `[batch]`, 0 for padding.
      labels: int32 `[batch]`.
      predict: builds the predictions of the batch; "probabilities", float32
        `[batch, num_classes]`. It is not called where there are no images.
      class_names: one for each class.
      directory: for TensorBoard's events.
    """
    image = features.get("image")
    if image is None or image.shape.rank != 4 or image.shape[-1] not in (1, 3):
        return []
    if not isinstance(labels, tf.Tensor) or labels.shape.rank != 1:
        return []
    probabilities = predict().get("probabilities")
    if probabilities is None or probabilities.shape.as_list()[1:] != [len(class_names)]:
        return []
    tensors = {
        "images": image,
        "labels": labels,
        "probabilities": probabilities,
        "weights": features["weight"],
    }
    return [GalleryHook(tensors, class_names, directory)]


class GalleryHook(tf.estimator.SessionRunHook):
    """Fetches the first batch and draws up to 24 of its images."""

    def __init__(self, tensors, class_names, directory):
        """Takes `images`, `labels`, `probabilities` and `weights` of a batch."""
        count = _COLUMNS * _ROWS
        self._fetches = {name: tensor[:count] for name, tensor in tensors.items()}
        self._fetches["step"] = tf.compat.v1.train.get_global_step()
        self._class_names = class_names
        self._directory = directory

    def begin(self):
        """Comes before each evaluation of this graph."""
        self._is_drawn = False

    def before_run(self, run_context):
        """Asks for the batch, once."""
        del run_context
        return None if self._is_drawn else tf.estimator.SessionRunArgs(self._fetches)

    def after_run(self, run_context, run_values):
        """Draws it."""
        del run_context
        if self._is_drawn:
            return
        self._is_drawn = True
        batch = run_values.results
        real = batch["weights"] > 0
        picture = draw(
            batch["images"][real],
            batch["labels"][real],
            batch["probabilities"][real],
            self._class_names,
        )
        encoded = io.BytesIO()
        picture.save(encoded, "PNG")
        tag = "predictions/first_images"
        summaries.write_image(self._directory, batch["step"], tag, encoded.getvalue())


def draw(images, labels, probabilities, class_names) -> Image.Image:
    """Draws a grid; under each image its likeliest class, in red with the label if that is another.

    Args:
      images: numbers `[n, height, width, 1 or 3]`; the largest of all becomes white.
      labels: ints `[n]`.
      probabilities: floats `[n, num_classes]`.
      class_names: one for each class.
    """
    height = _TILE + 2 * _LINE
    rows = -(-len(images) // _COLUMNS)
    picture = Image.new("RGB", (_COLUMNS * _TILE, rows * height), "white")
    pen = ImageDraw.Draw(picture)
    scaled = np.maximum(images, 0) * (255 / max(1, np.max(images, initial=0)))
    scaled = np.broadcast_to(scaled, (*images.shape[:-1], 3)).astype(np.uint8)
    for i, (pixels, label, shares) in enumerate(zip(scaled, labels, probabilities)):
        left, top = i % _COLUMNS * _TILE, i // _COLUMNS * height
        side = _TILE - 4
        tile = Image.fromarray(pixels).resize((side, side), Image.Resampling.NEAREST)
        picture.paste(tile, (left + 2, top + 2))
        likeliest = int(np.argmax(shares))
        is_right = likeliest == label
        said = f"{class_names[likeliest][:_MAX_NAME]} {shares[likeliest]:.2f}"
        pen.text((left + 2, top + _TILE), said, "black" if is_right else "red")
        if not is_right:
            truth = f"is {class_names[label][:_MAX_NAME]}"
            pen.text((left + 2, top + _TILE + _LINE), truth, "red")
    return picture
