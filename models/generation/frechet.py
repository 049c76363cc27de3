"""Fréchet distance of two sets of features, as FID (Heusel et al. 2017, arXiv:1706.08500)."""

from __future__ import annotations

import numpy as np


def moments(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean `[size]` and covariance `[size, size]` of features `[n, size]`, in float64."""
    features = features.astype(np.float64)
    return features.mean(axis=0), np.cov(features, rowvar=False)


def distance(first: tuple, second: tuple) -> float:
    """Fréchet distance between two normal distributions (Dowson and Landau 1982).

    `|m1 - m2|^2 + trace(C1 + C2 - 2 sqrt(C1 C2))`. The trace of the root is the sum of the roots of
    the eigenvalues of `sqrt(C1) C2 sqrt(C1)`, which is symmetric: so covariances may be singular,
    as those of fewer examples than features.

    Args:
      first: mean and covariance, see `moments`.
      second: like `first`.
    """
    (mean_1, covariance_1), (mean_2, covariance_2) = first, second
    values, vectors = np.linalg.eigh(covariance_1)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    product = root @ covariance_2 @ root
    values = np.linalg.eigvalsh((product + product.T) / 2)
    root_trace = np.sqrt(np.maximum(values, 0)).sum()
    traces = np.trace(covariance_1) + np.trace(covariance_2)
    return float(np.sum((mean_1 - mean_2) ** 2) + traces - 2 * root_trace)
