"""Pearson and Spearman correlation of predicted scores, a host metric."""

from __future__ import annotations

import numpy as np

from models import collapse
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
        labels, scores = self._arrays()
        return {name: getattr(ranking, name)(labels, scores) for name in self.names}

    def find_collapse(self, evaluation):
        """Returns a line if all scores are equal; see `models.model.CollapseFinder`."""
        del evaluation
        return collapse.of_numbers("score", *self._arrays())

    def _arrays(self):
        return np.concatenate(self._labels), np.concatenate(self._scores)
