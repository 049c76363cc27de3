"""Report of a GAN: a grid of generated images of each class, and interpolations of latents."""

from __future__ import annotations

import numpy as np

from common import pictures
from models.generation import sample_quality

_ROWS, _COLUMNS = 10, 10


def reports(params, pipeline):
    """Returns the report; see `Model`."""
    num_classes = pipeline.data.num_classes if "class_id" in pipeline.features else 0
    return [Samples(params, num_classes)]


class Samples:
    """A `models.model.RequestingReport` of two grids, whose latents are always the same.

    Columns of `samples` have one latent; rows have one class, of up to ten, or are further samples
    without classes. Rows of `interpolation` go from one latent to another on a great circle.
    """

    num_examples = 0

    def __init__(self, params, num_classes):
        """Takes all hyperparameters; and the number of classes, 0 without them."""
        random = np.random.default_rng(params["sampling_seed"])
        size, num_rows = params["latent_size"], min(num_classes, _ROWS) or _ROWS
        if num_classes:
            latents = np.tile(random.normal(size=[_COLUMNS, size]), [num_rows, 1])
        else:
            latents = random.normal(size=[num_rows * _COLUMNS, size])
        ends = random.normal(size=[2, num_rows, 1, size])
        fractions = np.linspace(0, 1, _COLUMNS)[:, np.newaxis]
        between = np.reshape(slerp(*ends, fractions), [-1, size])
        self._num_samples = len(latents)
        self.requests = {"latent": np.concatenate([latents, between]).astype(np.float32)}
        if num_classes:
            classes = np.repeat(np.arange(num_rows, dtype=np.int32), _COLUMNS)
            self.requests["class_id"] = np.tile(classes, 2)

    def write(self, evaluation):
        """Writes PNG files and images of TensorBoard; nothing on a TPU."""
        if not evaluation.requested:
            return {}
        images = sample_quality.to_pixels(evaluation.requested["image"])
        parts = np.split(images, [self._num_samples])
        for name, part in zip(("samples", "interpolation"), parts):
            png = pictures.to_png(pictures.grid(part, _COLUMNS))
            evaluation.write_file(f"{name}_{evaluation.step}.png", png)
            evaluation.write_image(f"generated/{name}", png)
        return {}

    def text(self, evaluation):
        """Returns ""."""
        del evaluation
        return ""


def slerp(first: np.ndarray, second: np.ndarray, fraction: np.ndarray) -> np.ndarray:
    """Spherical interpolation of latents (White 2016, arXiv:1609.04468).

    Linear interpolation would pass latents that are shorter than those of the training.

    Args:
      first: float `[..., latent_size]`.
      second: like `first`, not on the same line.
      fraction: broadcast to `[..., 1]`; 0: first, 1: second.
    """
    lengths = [np.linalg.norm(end, axis=-1, keepdims=True) for end in (first, second)]
    cosine = np.sum(first * second, axis=-1, keepdims=True) / (lengths[0] * lengths[1])
    angle = np.arccos(cosine)
    weights = np.sin((1 - fraction) * angle), np.sin(fraction * angle)
    return (weights[0] * first + weights[1] * second) / np.sin(angle)
