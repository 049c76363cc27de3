"""A data set of masks, as a user's function: `--dataset=tests.mask_arrays:make_pipeline`."""

import numpy as np

from input_fns.array_pipeline import ArrayPipeline

CLASS_NAMES = ("red", "green", "blue")


def make_pipeline(data_dir):
    """Reads the files of `tests.contract.segmentation_data.write_images`."""
    arrays = {name: np.load(f"{data_dir}/{name}.npz") for name in ("train", "test")}
    splits = {name: ({"image": a["image"]}, {"mask": a["classes"]}) for name, a in arrays.items()}
    return ArrayPipeline("masks", splits, CLASS_NAMES)
