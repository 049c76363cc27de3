"""An image with examples of each class."""

from __future__ import annotations

import io

import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw

from input_fns import images
from input_fns.dataset_info import DatasetInfo

_COLUMNS, _CELL, _MARGIN, _TEXT = 10, 64, 4, 160
_MAX_ROWS = 40


def png(data: DatasetInfo, split: str = "") -> bytes:
    """Returns a PNG with one row per class: its name and its first images.

    Args:
      data: the data set; only its first 40 classes are shown.
      split: name of the split; default: the first.
    """
    rows = _first_images(data, split or next(iter(data.splits)))
    step = _CELL + _MARGIN
    sheet = Image.new("RGB", (_TEXT + _COLUMNS * step, len(rows) * step + _MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    # Scale the brightest pixel to white: those of the digits are 0 to 16.
    brightest = max((image.max() for row in rows for image in row), default=255) or 255
    for y, (name, row) in enumerate(zip(data.class_names, rows)):
        draw.text((_MARGIN, _MARGIN + y * step + _CELL // 2), name[:26], "black")
        for x, image in enumerate(row):
            pixels = (image.astype(np.float32) * (255 / brightest)).astype(np.uint8)
            cell = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
            cell = cell.resize((_CELL, _CELL), Image.Resampling.BILINEAR).convert("RGB")
            sheet.paste(cell, (_TEXT + x * step, _MARGIN + y * step))
    encoded = io.BytesIO()
    sheet.save(encoded, "PNG")
    return encoded.getvalue()


def _first_images(data, split):
    rows = [[] for _ in range(min(data.num_classes, _MAX_ROWS))]
    missing = len(rows) * _COLUMNS
    parse = images.stored_fn(data.features, True, data.num_classes)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        records = tf.data.TFRecordDataset(data.files(split)).batch(1).map(parse).prefetch(16)
        stored, label = tf.compat.v1.data.make_one_shot_iterator(records).get_next()
        image = images.decode(stored["image"][0], data.features["image"])
        while missing:
            try:
                pixels, number = session.run((image, label[0]))
            except tf.errors.OutOfRangeError:
                break
            if number < len(rows) and len(rows[number]) < _COLUMNS:
                rows[number].append(pixels)
                missing -= 1
    return rows
