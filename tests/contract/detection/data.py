"""Images with up to four bright boxes, padded; the color of a box is its class."""

import numpy as np

from input_fns.array_pipeline import ArrayPipeline

SIZE, MAX_BOXES, NUM_CLASSES = 15, 4, 2


def make_pipeline(data_dir):
    """Returns the pipeline; the images are random, so `data_dir` is not used."""
    del data_dir
    return ArrayPipeline("boxes", {"train": _split(97, seed=1), "test": _split(41, seed=2)})


def _split(size, seed):
    random = np.random.default_rng(seed)
    images = random.integers(0, 30, [size, SIZE, SIZE, 3], dtype=np.uint8)
    boxes = np.zeros([size, MAX_BOXES, 4], np.float32)  # ymin, xmin, ymax, xmax in [0, 1]
    classes = np.zeros([size, MAX_BOXES], np.int32)
    valid = np.arange(MAX_BOXES) < random.integers(0, MAX_BOXES + 1, [size, 1])
    for i, j in zip(*np.nonzero(valid)):
        # One box in each quarter of the image.
        top, left = np.array(divmod(j, 2)) * SIZE // 2 + random.integers(0, 3, 2)
        bottom, right = np.add([top, left], random.integers(3, 6, 2))
        classes[i, j] = random.integers(NUM_CLASSES)
        images[i, top:bottom, left:right, classes[i, j]] += 200
        boxes[i, j] = np.array([top, left, bottom, right]) / SIZE
    return {"image": images}, {"boxes": boxes, "classes": classes, "valid": valid}
