"""Pearson and Spearman correlation of predicted scores, a host metric."""

from __future__ import annotations

import numpy as np

from models.targets import ranking


class Correlation:
    """Correlation of predictions `scores` and labels `score`; 0 if one of them is constant."""

    names = ("pearson", "spearman")
    directions = dict.fromkeys(names, "max")

    def __init__(self):
        self._labels, self._scores = [], []

    def update(self, features, labels, predictions):
        """Adds a batch; see `models.model.HostMetric`."""
        del features
        self._labels.append(labels["score"])
        self._scores.append(predictions["scores"])

    def result(self):
        """Returns `{"pearson": float, "spearman": float}`."""
        labels, scores = np.concatenate(self._labels), np.concatenate(self._scores)
        return {name: getattr(ranking, name)(labels, scores) for name in self.names}
