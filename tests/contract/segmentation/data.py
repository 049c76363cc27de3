"""Reads images and the class of every pixel from DATA_DIR/train.npz and test.npz."""

import numpy as np

from input_fns.array_pipeline import ArrayPipeline


def make_pipeline(data_dir):
    splits = {}
    for name in ("train", "test"):
        arrays = np.load(f"{data_dir}/{name}.npz")
        splits[name] = {"image": arrays["image"]}, arrays["classes"]  # features, labels
    return ArrayPipeline("shapes", splits)
