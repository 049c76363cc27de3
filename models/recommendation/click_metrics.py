"""Metrics of predicted probabilities of clicks over a whole split, a host metric.

    auc                area under the ROC curve: the probability that a click has a higher logit
                       than an example without click; a tie counts half. 0 without both
    log_loss           binary cross-entropy
    calibration        mean probability / mean label; 0 without clicks
    calibration_error  expected calibration error: |mean probability - mean label| of the examples
                       in each of 10 bins of probability of equal width, weighted by their number

A NaN among the logits makes all of them NaN.
"""

from __future__ import annotations

import numpy as np

_BINS = 10


class ClickMetrics:
    """Metrics of predictions `logits`, `[n]`, for labels 0 and 1, `[n]`; 5 bytes per example."""

    names = ("auc", "log_loss", "calibration", "calibration_error")

    def __init__(self):
        """Starts without examples."""
        # The best calibration is 1.
        self.directions = {"auc": "max", "log_loss": "min", "calibration_error": "min"}
        self._logits, self._labels = [], []

    def update(self, features, labels, predictions):
        """Adds a batch; see `models.model.HostMetric`."""
        del features
        self._logits.append(np.asarray(predictions["logits"], np.float32))
        self._labels.append(np.asarray(labels, np.uint8))

    def result(self):
        """Returns `{name: float}`, all of `names`."""
        logits, labels = np.concatenate(self._logits), np.concatenate(self._labels)
        if np.isnan(logits).any():
            return dict.fromkeys(self.names, float("nan"))
        logits = logits.astype(np.float64)
        losses = np.logaddexp(0, np.where(labels == 1, -logits, logits))
        probabilities = np.exp(-np.logaddexp(0, -logits))
        clicks = labels.mean()
        values = (
            _auc(logits, labels),
            losses.mean(),
            probabilities.mean() / clicks if clicks else 0.0,
            _calibration_error(probabilities, labels),
        )
        return {name: float(value) for name, value in zip(self.names, values)}


def _auc(logits, labels):
    """Mann-Whitney U of the ranks, with the mean rank of ties."""
    num_clicks = int(labels.sum())
    num_others = len(labels) - num_clicks
    if not num_clicks or not num_others:
        return 0.0
    _, inverse, counts = np.unique(logits, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2  # from 1
    rank_sum = mean_ranks[inverse[labels == 1]].sum()
    return (rank_sum - num_clicks * (num_clicks + 1) / 2) / (num_clicks * num_others)


def _calibration_error(probabilities, labels):
    bins = np.minimum((probabilities * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins, probabilities - labels, _BINS)
    return np.abs(gaps).sum() / len(labels)
