"""Long texts: windows of tokens for the model, documents for metrics, predictions and requests.

The model gets the features and labels of `token_pipeline`, a row for each window. Host metrics and
the writer of predictions also get `document_index`, int32 `[n]`, the number of the text in the
split, and join the predictions of its windows, wherever these are in batches and on cores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from common.constants import DOCUMENT_INDEX
from input_fns.core import serving
from input_fns.text.token_pipeline import TokenPipeline, TokenWriter

# Predictions of windows that can be joined.
EMBEDDINGS = ("embeddings", "second_embeddings")
JOINED = ("probabilities", "scores", *EMBEDDINGS)
UNIT_TOLERANCE = 1e-4  # of the length of a normalized embedding
_READ_AT_ONCE = 4096


@dataclasses.dataclass(frozen=True)
class DocumentPipeline(TokenPipeline):
    """Feeds windows of long texts; see the module.

    Attributes:
      join_windows: one of `common.constants.JOINS`.
    """

    join_windows: str = "mean"
    host_features = (DOCUMENT_INDEX,)
    file_examples = ""  # `--input` would have rows of one window

    def join(
        self, predictions: dict[str, np.ndarray], documents: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Returns the predictions of documents; see `join`."""
        return join(predictions, documents, self.join_windows)

    def prediction_writer(self, examples):
        """Returns the writer of a line per document."""
        return DocumentWriter(self, examples)

    def documents(self, split: str) -> np.ndarray:
        """Returns the number of the document of each window of a split, int32 `[windows]`."""
        batches = self.host_examples(split, _READ_AT_ONCE)
        return np.concatenate([features[DOCUMENT_INDEX] for features, _ in batches])

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the serving input receivers; that of text takes texts of any length."""
        receivers = TokenPipeline.receivers(self, top_k)
        receivers.pop(serving.EMBED_TEXT, None)  # rows are windows
        if self.serves_text:
            outputs = receivers[serving.TEXT].outputs
            receivers[serving.TEXT] = dataclasses.replace(
                receivers[serving.TEXT],
                features=self._windows_of_text,
                outputs=lambda predictions, features: outputs(
                    self._joined_in_graph(predictions, features), features
                ),
            )
        return receivers

    def _windows_of_text(self, inputs):
        from input_fns.text import document_ops  # TensorFlow Text is an optional dependency

        stride = self.data.properties["doc_stride"]
        texts = [inputs[name] for name in ("text", "text_pair") if name in inputs]
        return document_ops.windows(texts, self.tokenizer, self.data.kind.max_length, stride)

    def _joined_in_graph(self, predictions, features):
        from input_fns.text import document_ops

        return document_ops.joined(predictions, features[DOCUMENT_INDEX], self.join_windows)


def join(
    predictions: dict[str, np.ndarray], documents: np.ndarray, how: str
) -> dict[str, np.ndarray]:
    """Returns the predictions of documents from those of their windows.

    Args:
      predictions: `{name: [windows, ...]}` with probabilities of classes, scores or embeddings. The
        embedding of a document is normalized if those of all its windows are.
      documents: int `[windows]`, the document of each window, in order.
      how: "mean"; "max", of probabilities divided by their sum; "vote", the fraction of the windows
        that predict a class. The class of a tie is that with the larger mean.

    Returns:
      `{name: [documents, ...]}` of those that can be joined, and "classes" of probabilities.
    """
    starts = np.flatnonzero(np.diff(documents, prepend=-1))
    counts = np.diff(starts, append=len(documents))
    found = {}
    for name, values in predictions.items():
        if name not in JOINED:
            continue
        values = values.astype(np.float64)  # sums do not depend on rounding of float32
        per_document = counts.reshape([-1, *[1] * (values.ndim - 1)])
        mean = np.add.reduceat(values, starts) / per_document
        joined = best = mean
        if how == "max":
            joined = best = np.maximum.reduceat(values, starts)
            if name == "probabilities":
                joined = joined / joined.sum(axis=-1, keepdims=True)
        elif how == "vote" and name == "probabilities":
            votes = np.eye(values.shape[-1])[values.argmax(axis=-1)]
            joined = np.add.reduceat(votes, starts) / per_document
            best = joined + mean / (2 * per_document)  # less than a vote
        if name in EMBEDDINGS:
            joined = joined / _lengths(joined, values, starts)
        found[name] = joined.astype(np.float32)
        if name == "probabilities":
            found["classes"] = best.argmax(axis=-1).astype(np.int32)
    return found


def _lengths(joined, values, starts):
    """Returns the length of each joined embedding whose windows are normalized, else 1."""
    is_unit = np.abs(np.linalg.norm(values, axis=-1) - 1) < UNIT_TOLERANCE
    lengths = np.linalg.norm(joined, axis=-1)
    has_length = np.logical_and.reduceat(is_unit, starts) & (lengths > 0)
    return np.where(has_length, lengths, 1)[:, np.newaxis]


class DocumentWriter(TokenWriter):
    """Writes a line per document, with "windows", their number; tokens in a line per window."""

    def __init__(self, pipeline: DocumentPipeline, examples: Any):
        """Takes the pipeline and the `core.predictions.SplitExamples`."""
        super().__init__(pipeline, examples)
        self._split = examples.what

    def write(self, path: str, batches: Iterator[dict[str, np.ndarray]]) -> None:
        """Writes a file; see `core.predictions.PredictionWriter`."""
        super().write(path, self._joined(batches))

    def _joined(self, batches):
        documents = self._pipeline.documents(self._split)
        count, held = 0, None
        for batch in batches:
            if not {*JOINED} & batch.keys():
                size = len(next(iter(batch.values())))
                yield {DOCUMENT_INDEX: documents[count : count + size], **batch}
                count += size
                continue
            batch = {name: batch[name] for name in JOINED if name in batch}
            size = len(next(iter(batch.values())))
            batch[DOCUMENT_INDEX] = documents[count : count + size]
            count += size
            if held:
                batch = {name: np.concatenate([held[name], batch[name]]) for name in batch}
            # The last document may have windows in the next batch.
            is_whole = batch[DOCUMENT_INDEX] != batch[DOCUMENT_INDEX][-1]
            held = {name: values[~is_whole] for name, values in batch.items()}
            if is_whole.any():
                yield self._lines({name: values[is_whole] for name, values in batch.items()})
        if held:
            yield self._lines(held)

    def _lines(self, windows):
        _, counts = np.unique(windows[DOCUMENT_INDEX], return_counts=True)
        return {**self._pipeline.join(windows, windows[DOCUMENT_INDEX]), "windows": counts}
