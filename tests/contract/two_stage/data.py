"""Images with one bright box, whose color is its class."""

import numpy as np

from input_fns.array_pipeline import ArrayPipeline

SIZE, BOX, NUM_CLASSES = 13, 3, 3


def make_pipeline(data_dir):
    """Returns the pipeline; the images are random, so `data_dir` is not used."""
    del data_dir
    return ArrayPipeline("boxes", {"train": _split(97, seed=1), "test": _split(41, seed=2)})


def _split(size, seed):
    random = np.random.default_rng(seed)
    images = random.integers(0, 30, [size, SIZE, SIZE, 3], dtype=np.uint8)
    corners = random.integers(0, SIZE - BOX + 1, [size, 2], np.int32)  # top, left
    classes = random.integers(0, NUM_CLASSES, [size], np.int32)
    for image, (top, left), which in zip(images, corners, classes):
        image[top : top + BOX, left : left + BOX, which] += 200
    return {"image": images}, {"boxes": corners, "classes": classes}
