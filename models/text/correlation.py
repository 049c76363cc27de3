"""Pearson and Spearman correlation of predicted scores, a host metric."""

from __future__ import annotations

import numpy as np

from models.model import ModelError

try:
    from scipy import stats
except ModuleNotFoundError as error:
    raise ModelError(
        "correlations need SciPy: tools/setup.sh same text, or pip install '.[text]'"
    ) from error


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
        if len(labels) < 2 or np.ptp(labels) == 0 or np.ptp(scores) == 0:
            return dict.fromkeys(self.names, 0.0)
        return {
            "pearson": float(stats.pearsonr(labels, scores)[0]),
            "spearman": float(stats.spearmanr(labels, scores)[0]),
        }
