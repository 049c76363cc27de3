"""Points on a circle, and noise from which a generator makes such points."""

import numpy as np

from input_fns.array_pipeline import ArrayPipeline

NOISE_SIZE = 3


def make_pipeline(data_dir):
    """Returns the pipeline; the points are random, so `data_dir` is not used."""
    del data_dir
    return ArrayPipeline("circle", {"train": _split(97, seed=1), "test": _split(41, seed=2)})


def _split(size, seed):
    random = np.random.default_rng(seed)
    angles = random.uniform(0, 2 * np.pi, [size])
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    noise = random.normal(size=[size, NOISE_SIZE])
    return {"noise": noise.astype(np.float32)}, points.astype(np.float32)
