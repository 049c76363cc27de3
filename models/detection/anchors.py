"""Anchors: boxes of several sizes and aspect ratios around each cell of the feature maps.

Level l has a cell for each 2^l x 2^l pixels (Lin et al. 2017, arXiv:1708.02002, section 4).
"""

from __future__ import annotations

import numpy as np

from common.params import Floats
from models.model import ModelError, check_positive


def default_params():
    """Returns the hyperparameters of anchors."""
    return {
        "min_level": 3,  # P3: a cell for each 8x8 pixels
        "max_level": 7,  # P7: 128x128
        "anchor_size": 4.0,  # side of the smallest square anchor of a level, in cells
        "anchor_scales": 3,  # sizes of a level: anchor_size * 2^(i / anchor_scales)
        "anchor_ratios": Floats([0.5, 1, 2]),  # width divided by height
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    low, high = params["min_level"], params["max_level"]
    if not 2 <= low <= high <= 8:
        raise ModelError(f"min_level={low}, max_level={high} must be in order, in [2, 8]")
    check_positive(params, "anchor_size", "anchor_scales")
    ratios = params["anchor_ratios"]
    if not ratios or min(ratios) <= 0:
        raise ModelError(f"anchor_ratios={ratios} must be numbers above 0, such as [0.5,1,2]")


def per_cell(params) -> int:
    """Returns the number of anchors of a cell."""
    return params["anchor_scales"] * len(params["anchor_ratios"])


def by_level(image_size, params) -> dict[int, np.ndarray]:
    """Returns `{level: float32 [height, width, anchors per cell, 4]}`, in pixels of the image.

    Anchors may reach beyond the image. Those of a cell are ordered by scale, then by ratio.

    Args:
      image_size: height and width of the image in pixels; any, since the last row and column of
        cells may cover a part of the image only.
      params: see `default_params`.
    """
    found = {}
    for level in range(params["min_level"], params["max_level"] + 1):
        stride = 2**level
        height, width = (-(-size // stride) for size in image_size)
        scales = 2.0 ** (np.arange(params["anchor_scales"]) / params["anchor_scales"])
        sides = params["anchor_size"] * stride * scales[:, np.newaxis]
        ratios = np.sqrt(np.array(params["anchor_ratios"]))
        half = np.stack([sides / ratios, sides * ratios], axis=-1).reshape(-1, 2) / 2  # [a, 2]
        rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
        centers = (np.stack([rows, columns], axis=-1) + 0.5)[:, :, np.newaxis] * stride
        found[level] = np.concatenate([centers - half, centers + half], axis=-1, dtype=np.float32)
    return found


def flat(image_size, params) -> np.ndarray:
    """Returns the anchors of all levels, float32 `[n, 4]`, in the order of `by_level`."""
    return np.concatenate([level.reshape(-1, 4) for level in by_level(image_size, params).values()])
