"""Sentences that count up, for training, and their beginnings, for prediction."""

import numpy as np

from input_fns.array_pipeline import ArrayPipeline

PADDING, START, NUM_SPECIAL = 0, 1, 2
LENGTH, VOCAB_SIZE, PROMPT_LENGTH = 7, 13, 2


def make_pipeline(data_dir):
    """Returns the pipeline; the sentences are random, so `data_dir` is not used."""
    del data_dir
    splits = {"train": _split(97, seed=1), "test": _split(41, seed=2)}
    features, labels = splits["test"]
    is_prompt = np.arange(LENGTH) < PROMPT_LENGTH
    prompts = np.where(is_prompt, features["tokens"], PADDING).astype(np.int32)
    splits["prompts"] = {**features, "tokens": prompts}, labels
    return ArrayPipeline("sentences", splits)


def _split(size, seed):
    random = np.random.default_rng(seed)
    lengths = random.integers(PROMPT_LENGTH, LENGTH + 1, [size, 1])
    first = random.integers(NUM_SPECIAL, VOCAB_SIZE - LENGTH + 1, [size, 1])
    tokens = np.where(np.arange(LENGTH) < lengths, first + np.arange(LENGTH), PADDING)
    seeds = random.integers(0, 2**31 - 1, [size], np.int32)  # of the samples
    return {"tokens": tokens.astype(np.int32), "seed": seeds}, tokens.astype(np.int32)
