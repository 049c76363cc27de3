"""Precision, recall and F1 of entities as the conlleval script of CoNLL-2003, a host metric."""

from __future__ import annotations

from collections.abc import Sequence


def entities(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """Returns the entities of a sequence of tags B-X, I-X and O.

    An I-X that does not continue an entity of type X starts one, as in conlleval.

    Returns:
      `{(first word, last word, type)}`.
    """
    found, start = set(), None
    for i, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-")
        if start is not None and (prefix != "I" or kind != start[1]):
            found.add((start[0], i - 1, start[1]))
            start = None
        if start is None and prefix in ("B", "I"):
            start = i, kind
    return found


class EntityF1:
    """Scores of whole entities, micro averages: first word, last word and type must be correct."""

    names = ("entity_precision", "entity_recall", "entity_f1")
    directions = dict.fromkeys(names, "max")

    def __init__(self, tag_names: Sequence[str]):
        """Takes the names of the tags, in the order of their ids."""
        self._tag_names = tag_names
        self._correct = self._predicted = self._wanted = 0

    def update(self, features, labels, predictions):
        """Adds a batch; see `models.model.HostMetric`."""
        del features
        for label_ids, predicted_ids in zip(labels["tag_ids"], predictions["tag_ids"]):
            is_word = label_ids >= 0
            wanted, predicted = (
                entities([self._tag_names[i] for i in ids[is_word]])
                for ids in (label_ids, predicted_ids)
            )
            self._correct += len(wanted & predicted)
            self._predicted += len(predicted)
            self._wanted += len(wanted)

    def result(self):
        """Returns `{"entity_precision", "entity_recall", "entity_f1"}`; 0 instead of 0 / 0."""
        pairs = (
            (self._correct, self._predicted),
            (self._correct, self._wanted),
            (2 * self._correct, self._predicted + self._wanted),
        )
        return {
            name: part / whole if whole else 0.0 for name, (part, whole) in zip(self.names, pairs)
        }
