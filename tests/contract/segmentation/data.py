"""Images and the class of every pixel, from DATA_DIR/train.npz and test.npz."""

import os

import numpy as np

from input_fns.array_pipeline import ArrayPipeline


def make_pipeline(data_dir):
    """Reads `image`, uint8 [n, height, width, 3], and `classes`, uint8 [n, height, width]."""
    splits = {}
    for name in ("train", "test"):
        with np.load(os.path.join(data_dir, f"{name}.npz")) as arrays:
            splits[name] = {"image": arrays["image"]}, arrays["classes"]
    return ArrayPipeline("shapes", splits)
