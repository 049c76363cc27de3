"""Measures of scores against labels in NumPy, equal to those of scikit-learn and SciPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Curve(NamedTuple):
    """Precision and recall if scores from a threshold on are positive, float64 `[n]` each.

    `thresholds` are the different scores, from the highest one on.
    """

    thresholds: np.ndarray
    precision: np.ndarray
    recall: np.ndarray


def curve(is_positive: np.ndarray, scores: np.ndarray) -> Curve:
    """Returns the precision-recall curve of bool `[n]` with a positive one, and scores `[n]`."""
    order = np.argsort(-scores, kind="stable")
    scores = scores[order]
    last = np.flatnonzero(np.append(np.diff(scores) != 0, True))  # of equal scores
    positives = np.cumsum(is_positive[order])[last]
    return Curve(scores[last], positives / (last + 1), positives / positives[-1])


def average_precision(found: Curve) -> float:
    """Returns the area under the steps of a precision-recall curve."""
    return float(np.sum(np.diff(found.recall, prepend=0) * found.precision))


def best_threshold(found: Curve) -> float:
    """Returns a threshold in (0, 1) with the highest F1, half way to the next lower score."""
    total = found.precision + found.recall
    f1 = np.divide(2 * found.precision * found.recall, total, np.zeros_like(total), where=total > 0)
    best = int(np.argmax(f1))
    lower = np.append(found.thresholds[1:], 0)[best]
    return float(np.clip((found.thresholds[best].astype(np.float64) + lower) / 2, 1e-6, 1 - 1e-6))


def average_ranks(values: np.ndarray) -> np.ndarray:
    """Returns the rank of each value from 1, float64 `[n]`; that of equal values is their mean."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[group]


def area_under_roc(is_positive: np.ndarray, scores: np.ndarray) -> float:
    """Returns the probability that a positive has a higher score than a negative; ties count half.

    Args:
      is_positive: bool `[n]`, with True and False.
      scores: floats `[n]`.
    """
    positives = int(is_positive.sum())
    ranks = average_ranks(scores)[is_positive].sum()
    return float(
        (ranks - positives * (positives + 1) / 2) / (positives * (len(scores) - positives))
    )


def pearson(labels: np.ndarray, values: np.ndarray) -> float:
    """Returns the correlation of two arrays `[n]`; 0 if one of them is constant."""
    if len(labels) < 2 or np.ptp(labels) == 0 or np.ptp(values) == 0:
        return 0.0
    return float(np.corrcoef(labels.astype(np.float64), values.astype(np.float64))[0, 1])


def spearman(labels: np.ndarray, values: np.ndarray) -> float:
    """Returns the correlation of the ranks of two arrays `[n]`; 0 if one of them is constant."""
    return pearson(average_ranks(labels), average_ranks(values))


def r2(labels: np.ndarray, values: np.ndarray) -> float:
    """Returns the coefficient of determination; of constant labels 1 if all are right, else 0."""
    labels = labels.astype(np.float64)
    residual = np.sum(np.square(labels - values))
    total = np.sum(np.square(labels - labels.mean()))
    return float(1 - residual / total) if total else float(residual == 0)
