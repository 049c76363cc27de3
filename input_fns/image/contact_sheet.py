"""An image with examples of each class, or with boxes or masks drawn into images."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from PIL import Image

from common import drawing, pictures
from common.canvas import Canvas
from common.constants import IGNORED_CLASS
from input_fns.core import records
from input_fns.dataset_info import DatasetInfo
from input_fns.image import images
from input_fns.image.annotated_kind import unpack_outlines

_COLUMNS, _CELL, _MARGIN, _TEXT = 10, 64, 4, 160
_MAX_ROWS = 40
# Sizes for annotated images: pixels of a cell and of a line of the legend; cells; characters of a
# name; images that are shown in any case, and those looked at to find all classes.
_WIDE, _LEGEND, _ACROSS, _DOWN, _MAX_NAME = 300, 16, 4, 6, 12
_FIRST, _SCANNED = 12, 500


def of_classes(data: DatasetInfo) -> bytes:
    """Returns a PNG with one row for each of the first 40 classes: its name and first images."""
    rows = _first_images(data, next(iter(data.splits)))
    step = _CELL + _MARGIN
    sheet = Image.new("RGB", (_TEXT + _COLUMNS * step, len(rows) * step + _MARGIN), "white")
    draw = Canvas(sheet)
    # Scale the brightest pixel to white: those of the digits are 0 to 16.
    brightest = max((image.max() for row in rows for image in row), default=255)
    for y, (name, row) in enumerate(zip(data.class_names, rows)):
        draw.text((_MARGIN, _MARGIN + y * step + _CELL // 2), name[:26], "black")
        for x, image in enumerate(row):
            cell = to_picture(image, brightest).resize((_CELL, _CELL), Image.Resampling.BILINEAR)
            sheet.paste(cell, (_TEXT + x * step, _MARGIN + y * step))
    return pictures.to_png(sheet)


def to_picture(image: np.ndarray, brightest: float) -> Image.Image:
    """Returns an RGB picture: of more than three channels the first three, of two the first one.

    Args:
      image: numbers `[height, width, channels]`.
      brightest: the value that becomes white. Negative values and NaN become black.
    """
    shown = image[..., : 3 if image.shape[-1] >= 3 else 1].astype(np.float32)
    scale = 255 / brightest if brightest > 0 else 255
    pixels = np.nan_to_num(shown * np.float32(scale)).clip(0, 255).astype(np.uint8)
    return _to_image(pixels)


def _to_image(pixels):
    return Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).convert("RGB")


def of_annotations(data: DatasetInfo) -> bytes:
    """Returns a PNG of some images with their boxes or masks, and the colors of the classes."""
    class_names = data.kind.class_names
    drawn = []
    for example in _varied(data, next(iter(data.splits))):
        image = example["image"]
        scale = min(_WIDE / image.shape[1], _WIDE / image.shape[0])
        size = [max(1, round(side * scale)) for side in image.shape[1::-1]]
        resized = np.asarray(_to_image(image).resize(size, Image.Resampling.BILINEAR))
        if "mask" in example:
            mask = Image.fromarray(example["mask"][..., 0])
            mask = np.asarray(mask.resize(size, Image.Resampling.NEAREST))
            covered = drawing.blend(resized, mask)
            covered[mask == IGNORED_CLASS] = 255
            drawn.append(Image.fromarray(covered))
        else:
            is_box = example["classes"] >= 0
            classes = example["classes"][is_box].astype(int)
            names = [class_names[c][:_MAX_NAME] for c in classes]
            boxes = example["boxes"][is_box] * scale
            picture = Image.fromarray(resized)
            if "outlines" in example:
                masks = unpack_outlines(example["outlines"].tobytes().rstrip(b"\0"))
                picture = drawing.draw_masks(picture, masks, classes)
            drawn.append(drawing.draw_boxes(picture, boxes, classes, names))
    rows = [drawn[i : i + _ACROSS] for i in range(0, len(drawn), _ACROSS)]
    legend = [
        (class_names[i], drawing.class_color(i)) for i in range(min(len(class_names), _MAX_ROWS))
    ]
    if not data.kind.has_boxes:
        legend.append(("ignored", (255, 255, 255)))
    heights = [max(image.height for image in row) + _MARGIN for row in rows]
    height = max(sum(heights), len(legend) * _LEGEND) + _MARGIN
    sheet = Image.new("RGB", (_TEXT + _ACROSS * (_WIDE + _MARGIN), height), "white")
    draw = Canvas(sheet)
    for i, (name, color) in enumerate(legend):
        y = _MARGIN + i * _LEGEND
        draw.rectangle([_MARGIN, y, _MARGIN + 10, y + 10], fill=color, outline="black")
        draw.text((_MARGIN + 16, y), name[:22], "black")
    for i, row in enumerate(rows):
        for column, image in enumerate(row):
            place = (_TEXT + column * (_WIDE + _MARGIN), _MARGIN + sum(heights[:i]))
            sheet.paste(image, place)
    return pictures.to_png(sheet)


def _varied(data, split):
    """Returns examples: the first ones, and later ones with classes that are still missing."""
    shown = np.zeros([data.kind.num_classes], int)
    found = []
    for number, example in enumerate(_examples(data, split)):
        labels = np.unique(example.get("mask", example.get("classes")))
        labels = labels[(labels >= 0) & (labels < len(shown))].astype(int)
        if len(found) < _FIRST or (shown[labels] == 0).any():
            found.append(example)
            shown[labels] += 1
        if (
            len(found) == _ACROSS * _DOWN
            or number == _SCANNED
            or (len(found) >= _FIRST and shown.all())
        ):
            break
    return found


def _examples(data, split):
    """Yields decoded examples of a split, in order."""
    parse = images.stored_fn(data.features, False)

    def decode(serialized):
        stored, _ = parse(serialized)
        return {
            name: images.decode(stored[name][0], data.features[name])
            for name in ("image", *data.labels)
        }

    files = data.files(split)
    yield from records.iterate(lambda: tf.data.TFRecordDataset(files).batch(1).map(decode))


def _first_images(data, split):
    rows = [[] for _ in range(min(data.num_classes, _MAX_ROWS))]
    missing = len(rows) * _COLUMNS
    parse = images.stored_fn(data.features, True, data.num_classes)

    def decode(serialized):
        stored, label = parse(serialized)
        return images.decode(stored["image"][0], data.features["image"]), label[0]

    files = data.files(split)
    for pixels, number in records.iterate(
        lambda: tf.data.TFRecordDataset(files).batch(1).map(decode)
    ):
        if number < len(rows) and len(rows[number]) < _COLUMNS:
            rows[number].append(pixels)
            missing -= 1
        if not missing:
            break
    return rows
