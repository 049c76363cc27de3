"""Ratings of items by users."""

import numpy as np

from input_fns.array_pipeline import ArrayPipeline

NUM_ITEMS, HISTORY = 200_000, 7


def make_pipeline(data_dir):
    """Returns the pipeline; the ratings are random, so `data_dir` is not used."""
    del data_dir
    return ArrayPipeline("ratings", {"train": _split(97, seed=1), "test": _split(41, seed=2)})


def _split(size, seed):
    random = np.random.default_rng(seed)
    items = random.integers(0, NUM_ITEMS, [size, HISTORY], np.int32)
    items[:, 0] = items[::-1, 1]  # some rows of the embedding are used twice in a batch
    return {"items": items}, (items.mean(axis=1) / NUM_ITEMS).astype(np.float32)
