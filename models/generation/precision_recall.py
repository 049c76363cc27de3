"""Improved precision and recall (Kynkäänniemi et al. 2019, arXiv:1904.06991)."""

from __future__ import annotations

import numpy as np

_ROWS = 1024  # distances of so many features to all others are in memory at once


def precision_and_recall(real: np.ndarray, generated: np.ndarray, neighbors: int) -> tuple:
    """Returns which fractions of the generated and of the real features the other set covers.

    A set covers a feature that is within the distance of one of its features to the k-th nearest
    other one (equation 1 of the paper).

    Args:
      real: float `[n, size]`.
      generated: float `[m, size]`.
      neighbors: k, below n and m.

    Returns:
      Precision and recall, floats in [0, 1].
    """
    real, generated = real.astype(np.float64), generated.astype(np.float64)
    precision = _covered(generated, real, _radii(real, neighbors))
    return precision, _covered(real, generated, _radii(generated, neighbors))


def _radii(features, neighbors):
    """Returns the squared distance of each feature to its k-th nearest other one, `[n]`."""
    # The nearest one is the feature.
    nearest = (np.partition(d, neighbors, axis=1) for d in _distances(features, features))
    return np.concatenate([rows[:, neighbors] for rows in nearest])


def _covered(features, others, radii):
    """Returns the fraction of features within the radius of one of the others."""
    inside = [(d <= radii).any(axis=1) for d in _distances(features, others)]
    return float(np.concatenate(inside).mean())


def _distances(features, others):
    """Yields squared distances of some features to all others, `[rows, len(others)]`."""
    squares = np.square(others).sum(axis=1)
    for begin in range(0, len(features), _ROWS):
        rows = features[begin : begin + _ROWS]
        products = rows @ others.T
        yield np.maximum(np.square(rows).sum(axis=1)[:, np.newaxis] - 2 * products + squares, 0)
