"""Draws a sheet of augmented images: one row per value of --augment, one column per image.

python -m tools.augmentation_sheet DATA_DIR SHEET.jpg ["WORDS" ...]
"""

import sys

from engine.cli import startup

if __name__ == "__main__":
    startup.hide_logs()
    startup.check(startup.check_environment)

import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw

from common.errors import UsageError
from engine.cli import runtime, startup
from input_fns import dataset_info
from input_fns.image import augment
from input_fns.image.image_pipeline import ImagePipeline

ROWS = (
    "",
    "resize_crop:0.2",
    "random_crop",
    "flip",
    "crop:12",
    "shift:0.2",
    "rotate:20",
    "shear:20",
    "scale:0.3",
    "jitter:0.4",
    "erase:1",
    "randaugment:2:7",
    "mixup:1",
    "cutmix:1",
    "random_crop flip rotate:20 jitter:0.4",
)
_COLUMNS, _SIZE, _TEXT, _MARGIN = 8, 64, 230, 3


def main(data_dir, path, *rows):
    """Writes the sheet."""
    runtime.prepare()
    rows = rows or ROWS
    step = _SIZE + _MARGIN
    sheet = Image.new("RGB", (_TEXT + _COLUMNS * step, len(rows) * step), "white")
    draw = ImageDraw.Draw(sheet)
    for y, words in enumerate(rows):
        draw.text((_MARGIN, y * step + _SIZE // 2), words or "as evaluation sees them", "black")
        for x, image in enumerate(_images(data_dir, words)):
            pixels = image[..., 0] if image.shape[-1] == 1 else image
            sheet.paste(Image.fromarray(pixels), (_TEXT + x * step, y * step))
    sheet.save(path, quality=80)


def _images(data_dir, words):
    pipeline = ImagePipeline(dataset_info.read(data_dir), (_SIZE, _SIZE), augment.parse(words))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        batches = pipeline.train_input_fn("train", seed=4)({"batch_size": _COLUMNS})
        features, _ = session.run(tf.compat.v1.data.make_one_shot_iterator(batches).get_next())
    return np.asarray(features["image"])


def _main():
    if len(sys.argv) < 3:
        raise UsageError(__doc__.splitlines()[-1])
    main(*sys.argv[1:])


if __name__ == "__main__":
    startup.run(_main)
