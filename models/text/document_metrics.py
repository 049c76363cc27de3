"""Metrics of long texts: the predictions of the windows of a text are joined, a host metric.

The metrics of the model count windows; these count documents, each once.
"""

from __future__ import annotations

import types

import numpy as np

from common.constants import DOCUMENT_INDEX
from models.targets import ranking


def host_metrics(pipeline, kind):
    """Returns `[kind(pipeline)]` if the pipeline has documents, else [].

    Args:
      pipeline: with documents, it has `join`, from predictions of windows to those of documents.
      kind: `Classes` or `Scores`.
    """
    return [kind(pipeline)] if hasattr(pipeline, "join") else []


class _Documents:
    """Collects predictions and labels of windows; they are joined when all are known."""

    prediction = label = ""

    def __init__(self, pipeline):
        """Takes the pipeline, which joins predictions."""
        self._join = pipeline.join
        self._documents, self._predictions, self._labels = [], [], []

    def update(self, features, labels, predictions):
        """Adds a batch of windows; see `models.model.HostMetric`."""
        self._documents.append(features[DOCUMENT_INDEX])
        self._predictions.append(predictions[self.prediction])
        self._labels.append(labels[self.label] if isinstance(labels, dict) else labels)

    def _joined(self):
        """Returns the joined predictions, and the label of each document."""
        documents = np.concatenate(self._documents)
        joined = self._join({self.prediction: np.concatenate(self._predictions)}, documents)
        is_first = np.diff(documents, prepend=-1) != 0
        return joined, np.concatenate(self._labels)[is_first]


class Classes(_Documents):
    """Accuracy, F1 and Matthews correlation of the classes of documents; see `classification`."""

    names = ("document_accuracy", "document_f1", "document_matthews_correlation")
    directions = dict.fromkeys(names, "max")
    prediction = "probabilities"

    def result(self):
        """Returns `{name: float}`."""
        joined, labels = self._joined()
        size = joined["probabilities"].shape[1]
        matrix = np.zeros([size, size])
        np.add.at(matrix, (labels, joined["classes"]), 1)
        wanted, predicted, total = matrix.sum(axis=1), matrix.sum(axis=0), matrix.sum()
        f1 = 2 * matrix.diagonal() / np.maximum(wanted + predicted, 1)
        covariance = matrix.trace() * total - wanted @ predicted
        variance = (total**2 - wanted @ wanted) * (total**2 - predicted @ predicted)
        found = (
            matrix.trace() / total,
            f1[1] if size == 2 else f1.mean(),
            covariance / np.sqrt(variance) if variance else 0.0,
        )
        return dict(zip(self.names, map(float, found)))


class Scores(_Documents):
    """Mean absolute error, Pearson and Spearman correlation of the scores of documents."""

    names = ("document_mean_absolute_error", "document_pearson", "document_spearman")
    directions = types.MappingProxyType(dict(zip(names, ("min", "max", "max"))))
    prediction, label = "scores", "score"

    def result(self):
        """Returns `{name: float}`."""
        joined, labels = self._joined()
        scores = joined["scores"]
        error = float(np.abs(scores - labels).mean())
        found = (error, ranking.pearson(labels, scores), ranking.spearman(labels, scores))
        return dict(zip(self.names, found))
