"""Writes a folder of images as TFRecords with tensorflow-datasets, for `prepare_images`.

    PYTHON benchmarks/peers/tfds_image_folder.py SOURCE DATA_DIR [SIDE]

SOURCE has a folder for each class. The builder stores the files as they are, and opens none. With
SIDE it stores pixels: Pillow decodes and resizes, as in prepare_data.py --image_size=SIDE.
"""

import pathlib
import sys

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

SOURCE, DATA_DIR = map(pathlib.Path, sys.argv[1:3])
SIDE = int(sys.argv[3]) if len(sys.argv) > 3 else None


class Images(tfds.core.GeneratorBasedBuilder):
    """The builder, with one split."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        image = tfds.features.Image()
        if SIDE:
            encoding = tfds.features.Encoding.BYTES
            image = tfds.features.Tensor(shape=(SIDE, SIDE, 3), dtype=np.uint8, encoding=encoding)
        names = sorted(path.name for path in SOURCE.iterdir())
        label = tfds.features.ClassLabel(names=names)
        features = tfds.features.FeaturesDict({"image": image, "label": label})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        del dl_manager
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for path in sorted(SOURCE.glob("*/*")):
            image = _pixels(path) if SIDE else path
            yield str(path.relative_to(SOURCE)), {"image": image, "label": path.parent.name}


def _pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))


if __name__ == "__main__":
    Images(data_dir=str(DATA_DIR)).download_and_prepare()
