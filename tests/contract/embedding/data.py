"""Ratings of a user, whose history is a list of items. Features are a nested dict."""

import numpy as np

from input_fns.array_pipeline import ArrayPipeline

NUM_ITEMS = 200_000


def make_pipeline(data_dir, params):
    """Returns the pipeline; the ratings are random, so `data_dir` is not used."""
    del data_dir
    splits = {"train": _split(97, 1, params["history"]), "test": _split(41, 2, params["history"])}
    return ArrayPipeline("ratings", splits, properties={"num_items": NUM_ITEMS})


def _split(size, seed, history):
    random = np.random.default_rng(seed)
    items = random.integers(0, NUM_ITEMS, [size, history], np.int32)
    items[:, 0] = items[::-1, 1]  # a batch uses some rows of the embedding twice
    features = {"user": {"items": items}, "day": random.random([size], np.float32)}
    return features, (items.mean(axis=1) / NUM_ITEMS).astype(np.float32)
