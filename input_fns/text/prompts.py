"""Prompts of a language model, one per line of a file or of a split, and their continuations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import numpy as np

from common import files
from input_fns.core.predictions import SplitExamples


class Prompts:
    """Prompts of a file; implements `predictions.Examples`.

    Attributes:
      rows: int32 `[prompts, max_length]`, token ids.
      lengths: int32 `[prompts]`, tokens of each prompt.
    """

    what = ""
    reads_files = False

    def __init__(self, pipeline, rows: np.ndarray, lengths: np.ndarray):
        """The seed of a prompt is its number."""
        self._pipeline, self.rows, self.lengths = pipeline, rows, lengths

    @property
    def size(self) -> int:
        """Number of prompts."""
        return len(self.rows)

    @property
    def input_fn(self) -> Callable:
        """The input_fn."""
        seeds = np.arange(self.size, dtype=np.int32)
        return self._pipeline.prompts_input_fn(self.rows, self.lengths, seeds)

    def names(self) -> None:
        """Returns None: prompts have no names."""

    def count(self) -> int:
        """Returns `size`."""
        return self.size


class SplitPrompts(SplitExamples):
    """The rows of a split as prompts."""

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each prompt, int32 `[prompts]`."""
        batches = self._pipeline.host_examples(self.what, 1024)
        return np.concatenate([(f["num_tokens"] + 1) // 2 for f, _ in batches])


class ContinuationWriter:
    """Writes a line of JSON for each prompt.

    "prompt" and "text", its continuation, are texts; "num_tokens" is the number of generated
    tokens, with that of the end, and "log_prob" the sum of their log probabilities.
    """

    endings = (".jsonl",)

    def __init__(self, tokenizer, examples):
        """Takes the `tokenizer.Tokenizer`, and the prompts."""
        self._tokenizer, self._examples = tokenizer, examples

    def write(self, path: str, batches: Iterator[dict[str, np.ndarray]]) -> None:
        """Writes a file; see `input_fns.core.predictions.PredictionWriter`."""
        lengths, index = self._examples.lengths, 0
        with files.atomic_write(path, "wb") as file:
            for batch in batches:
                for row in zip(batch["tokens"], batch["length"], batch["log_probs"]):
                    line = {"index": index, **self._line(int(lengths[index]), *row)}
                    file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
                    index += 1

    def _line(self, begin, tokens, end, log_probs):
        decode = self._tokenizer.decode
        return {
            "prompt": decode(tokens[:begin]),
            "text": decode(tokens[begin:end]),
            "num_tokens": int(end) - begin,
            "log_prob": float(log_probs[begin:end].sum(dtype=np.float64)),
        }
