"""Sentences with masked tokens, and whether each sentence counts up or down."""

import numpy as np

from input_fns.array_pipeline import ArrayPipeline

PADDING, MASK, NUM_SPECIAL = 0, 1, 2
LENGTH, VOCAB_SIZE = 7, 23


def make_pipeline(data_dir):
    """Returns the pipeline; the sentences are random numbers, so `data_dir` is not used."""
    del data_dir
    return ArrayPipeline("counting", {"train": _split(97, seed=1), "test": _split(41, seed=2)})


def _split(size, seed):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, LENGTH + 1, [size, 1])
    is_ascending = random.integers(0, 2, [size, 1])
    positions = np.arange(LENGTH)
    first = random.integers(NUM_SPECIAL, VOCAB_SIZE - LENGTH, [size, 1])
    tokens = first + np.where(is_ascending, positions, LENGTH - 1 - positions)
    tokens = np.where(positions < lengths, tokens, PADDING).astype(np.int32)
    # The rate differs between sentences: so do the numbers of masked tokens of two cores.
    is_masked = (tokens != PADDING) & (random.random([size, LENGTH]) < random.random([size, 1]))
    features = {"tokens": np.where(is_masked, MASK, tokens).astype(np.int32)}
    labels = {"tokens": tokens, "is_ascending": is_ascending[:, 0].astype(np.int32)}
    return features, labels
