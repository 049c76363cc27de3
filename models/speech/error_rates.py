"""Word and character error rates of a whole split, a host metric of speech recognition."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np


class ErrorRates:
    """Errors of all texts, divided by the words or characters of all references.

    Errors are the substitutions, deletions and insertions of the least edit distance. Words are
    separated by spaces.
    """

    names = ("word_error_rate", "character_error_rate")
    directions = dict.fromkeys(names, "min")

    def __init__(self, decode: Callable[[np.ndarray], Sequence[str]]):
        """Takes the function from tokens, int `[n, max_tokens]`, to n texts."""
        self._decode = decode
        self._errors, self._sizes = np.zeros(2, np.int64), np.zeros(2, np.int64)

    def update(self, features, labels, predictions):
        """Adds the texts of `predictions["tokens"]` and of the labels."""
        del features
        texts = self._decode(labels["tokens"]), self._decode(predictions["tokens"])
        for reference, hypothesis in zip(*texts):
            self.add(reference, hypothesis)

    def add(self, reference: str, hypothesis: str) -> None:
        """Adds one text."""
        pairs = (reference.split(), hypothesis.split()), (reference.strip(), hypothesis.strip())
        for i, (wanted, found) in enumerate(pairs):
            self._errors[i] += edit_distance(wanted, found)
            self._sizes[i] += len(wanted)

    def result(self):
        """Returns the error rates; NaN without a word in any reference."""
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = self._errors / np.where(self._sizes, self._sizes, np.nan)
        return dict(zip(self.names, rates.tolist()))


def edit_distance(reference: Sequence, hypothesis: Sequence) -> int:
    """Returns the Levenshtein distance: substitutions, deletions and insertions."""
    # Hashable items as numbers, so that NumPy compares them.
    numbers = {item: number for number, item in enumerate({*reference, *hypothesis})}
    wanted, found = (np.array([numbers[item] for item in x], int) for x in (reference, hypothesis))
    places = np.arange(len(found) + 1)
    row = places
    for number, item in enumerate(wanted, start=1):
        # Without insertions: a deletion, or a substitution unless the items are equal.
        best = np.minimum(row[1:] + 1, row[:-1] + (found != item))
        best = np.concatenate([[number], best])
        # With them: each costs one, so the least of `best - place` so far counts.
        row = np.minimum.accumulate(best - places) + places
    return int(row[-1])
