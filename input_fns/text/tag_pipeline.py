"""Long documents of words with tags: windows for the model, documents for metrics and predictions.

The model gets rows of `token_pipeline`; a token has a tag in one window only, that in which it has
the most context. Host metrics and the writer of predictions also get `document_index`, int32 `[n]`,
and `is_max_context`, int32 `[n, max_length]`, which say how the rows join.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from common.constants import DOCUMENT_INDEX, MAX_CONTEXT
from input_fns.text.token_pipeline import TokenPipeline, TokenWriter

_READ_AT_ONCE = 4096


@dataclasses.dataclass(frozen=True)
class TagDocumentPipeline(TokenPipeline):
    """Feeds windows of long documents; see the module."""

    host_features = (DOCUMENT_INDEX, MAX_CONTEXT)

    def prediction_writer(self, examples):
        """Returns the writer of a line per document."""
        return TagDocumentWriter(self, examples)

    def windows(self, split: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the document of each window of a split, and which tokens count there, bool."""
        for features, _ in self.host_examples(split, _READ_AT_ONCE):
            yield from zip(features[DOCUMENT_INDEX].tolist(), features[MAX_CONTEXT] > 0)


class TagDocumentWriter(TokenWriter):
    """Writes a line per document: the tag of each of its tokens, once, and "windows"."""

    def __init__(self, pipeline: TagDocumentPipeline, examples: Any):
        """Takes the pipeline and the `core.predictions.SplitExamples`."""
        super().__init__(pipeline, examples)
        self._split = examples.what

    def write(self, path: str, batches: Iterator[dict[str, np.ndarray]]) -> None:
        """Writes a file; see `core.predictions.PredictionWriter`."""
        super().write(path, self._joined(batches))

    def _joined(self, batches):
        windows, held, document = self._pipeline.windows(self._split), [], None
        for batch in batches:
            if "tag_ids" not in batch:  # other predictions, such as embeddings: a line per window
                yield batch
                continue
            for tag_ids, probabilities in zip(batch["tag_ids"], batch["tag_probabilities"]):
                number, counts = next(windows)
                if held and number != document:
                    yield _line(held)
                    held = []
                document = number
                held.append((tag_ids[counts], probabilities[counts]))
        if held:
            yield _line(held)


def _line(windows):
    tag_ids, probabilities = (np.concatenate(parts)[np.newaxis] for parts in zip(*windows))
    count = np.array([len(windows)])
    return {"tag_ids": tag_ids, "tag_probabilities": probabilities, "windows": count}
