"""Sentences to translate, longest first, and the file of their translations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Callable

import numpy as np

from common import files


class Sentences:
    """Source sentences, sorted by length (descending): similar lengths share a batch.

    A batch takes as long as its longest sentence. Implements `predictions.Examples`.

    Attributes:
      rows: int32 `[sentences, max_length]`, token ids.
      lines: int64 `[sentences]`, line number of each row, from 0.
      num_lines: number of lines of the input. Lines without a row get an empty translation.
    """

    what = ""
    reads_files = False

    def __init__(self, pipeline, rows: Sequence[np.ndarray], lines: np.ndarray, num_lines: int):
        """Sorts the rows, given in the order of `lines`."""
        order = longest_first(rows)
        self._pipeline, self.rows, self.lines = pipeline, rows[order], lines[order]
        self.num_lines = num_lines

    @property
    def size(self) -> int:
        """Number of sentences."""
        return len(self.rows)

    @property
    def input_fn(self) -> Callable:
        """The input_fn."""
        return self._pipeline.rows_input_fn(self.rows)

    def names(self) -> None:
        """Returns None: sentences have no names."""

    def count(self) -> int:
        """Returns `size`."""
        return self.size


class TranslationWriter:
    """Writes one translation per line, in the order of the lines."""

    endings = (".txt",)

    def __init__(self, decode: Callable[[np.ndarray], Sequence[str]], sentences: Sentences):
        """Takes the function from token ids `[n, max_length]` to texts."""
        self._decode, self._sentences = decode, sentences

    def write(self, path: str, batches: Iterator[dict[str, np.ndarray]]) -> None:
        """Writes a file; see `input_fns.core.predictions.PredictionWriter`."""
        lines = [""] * self._sentences.num_lines
        texts = (text for batch in batches for text in self._decode(batch["target"]))
        for text, line in zip(texts, self._sentences.lines):
            lines[line] = text.replace("\n", " ")  # the model may generate a newline
        with files.atomic_write(path, "wb") as file:
            file.write("".join(f"{line}\n" for line in lines).encode())


def longest_first(rows: np.ndarray) -> np.ndarray:
    """Returns the order of int32 `[sentences, max_length]` by length, longest first, stable."""
    return np.argsort(-np.count_nonzero(rows, axis=1), kind="stable")
