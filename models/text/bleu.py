"""BLEU of a whole split, a host metric of translation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import sacrebleu


class Bleu:
    """Corpus BLEU in percent by sacreBLEU (Post 2018, arXiv:1804.08771)."""

    names = ("bleu",)
    directions = dict.fromkeys(names, "max")

    def __init__(self, decode: Callable[[np.ndarray], Sequence[str]]):
        """Takes the function from token ids, int `[n, length]`, to n texts."""
        self._decode = decode
        self._hypotheses, self._references = [], []

    def update(self, features, labels, predictions):
        """Adds the decoded `predictions["target"]` and labels."""
        del features
        # A translation is one line, but the model may generate a newline.
        hypotheses = [text.replace("\n", " ") for text in self._decode(predictions["target"])]
        self._hypotheses += hypotheses
        self._references += self._decode(labels)

    def result(self):
        """Returns `{"bleu": float}` and prints sacreBLEU's signature."""
        bleu = sacrebleu.BLEU()
        score = bleu.corpus_score(self._hypotheses, [self._references]).score
        print(f"BLEU {score:.2f} {bleu.get_signature()}")
        return {"bleu": score}
