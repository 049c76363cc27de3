"""Ratings of an item by a user with a bag of tags, which is empty for some; ids repeat."""

import numpy as np

from input_fns.array_pipeline import ArrayPipeline

NUM_USERS, NUM_TAGS, NUM_ITEMS = 23, 11, 300
MAX_TAGS, CANDIDATES = 5, 3


def make_pipeline(data_dir, params):
    """Returns the pipeline of random examples; `data_dir` and `params` are not used."""
    del data_dir, params
    return ArrayPipeline("tags", {"train": _split(320, 1), "test": _split(41, 2)})


def _split(size, seed):
    random = np.random.default_rng(seed)
    tags = random.integers(0, NUM_TAGS, [size, MAX_TAGS])
    counts = random.integers(0, MAX_TAGS + 1, [size, 1])  # a sixth of the bags is empty
    items = random.integers(0, 40, [size, CANDIDATES])
    items[::7, 2] = -1
    features = {
        "user": random.integers(0, NUM_USERS, [size]).astype(np.int32),
        "tags": np.where(np.arange(MAX_TAGS) < counts, tags, -1).astype(np.int32),
        "items": items.astype(np.int32),
    }
    return features, random.random([size]).astype(np.float32)
