"""Precision, recall and F1 of entities (CoNLL-2003), a host metric."""

from __future__ import annotations

from models.model import ModelError

try:
    from seqeval import metrics
except ModuleNotFoundError as error:
    raise ModelError(
        "scores of entities need seqeval: tools/setup.sh tensorflow text, or pip install '.[text]'"
    ) from error


class EntityF1:
    """Scores of whole entities, words with the tags B-X I-X I-X."""

    names = ("entity_precision", "entity_recall", "entity_f1")

    def __init__(self, tag_names):
        """Takes the names of the tags, in the order of their ids."""
        self._tag_names = tag_names
        self._labels, self._predictions = [], []

    def update(self, features, labels, predictions):
        """Adds a batch; see `models.model.HostMetric`."""
        del features
        for wanted, found in zip(labels["tag_ids"], predictions["tag_ids"]):
            words = wanted >= 0
            self._labels.append([self._tag_names[i] for i in wanted[words]])
            self._predictions.append([self._tag_names[i] for i in found[words]])

    def result(self):
        """Returns `{"entity_precision", "entity_recall", "entity_f1"}`, micro averages."""
        scores = (metrics.precision_score, metrics.recall_score, metrics.f1_score)
        return {
            name: float(score(self._labels, self._predictions, zero_division=0))
            for name, score in zip(self.names, scores)
        }
