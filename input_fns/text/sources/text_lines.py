"""A file of texts to predict, one per line: `--input`. Two texts of a pair are separated by a tab.

An empty line is a text without tokens: each line has a prediction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from input_fns import DataError
from input_fns.convert.files import read_lines
from input_fns.text import wordpiece
from input_fns.text.sources import token_rows

_MAX_BYTES = 2**30  # the rows are a constant of the graph
_TABLES = (".tsv", ".csv", ".json", ".jsonl")
_FEATURES = ("input_ids", "input_mask", "segment_ids")


@dataclasses.dataclass(frozen=True)
class TextLines:
    """The lines of a file; `core.predictions.Examples`.

    Attributes:
      rows: `{feature: int32 [lines, max_length]}`.
      places: code points in the line where each token starts and after it, int32 `[lines,
        max_length]` each; 0 for special tokens.
    """

    rows: dict[str, np.ndarray]
    places: tuple[np.ndarray, np.ndarray]
    what = "input"
    reads_files = False  # a remote TPU gets the rows in the graph

    @property
    def size(self) -> int:
        """Number of lines."""
        return len(self.places[0])

    @property
    def input_fn(self) -> Callable:
        """The input_fn of the rows."""
        rows = self.rows

        def input_fn(params):
            return tf.data.Dataset.from_tensor_slices(rows).batch(params["batch_size"])

        return input_fn

    def names(self) -> Iterator[str] | None:
        """Returns None: lines have no names."""

    def count(self) -> int:
        """Returns `size`."""
        return self.size


def read(path: str, pipeline) -> TextLines:
    """Tokenizes the lines of a UTF-8 file, truncated as the data set.

    Args:
      path: path of the file.
      pipeline: a `token_pipeline.TokenPipeline`.

    Raises:
      DataError: it is missing, a table, not text or empty; or a line is not a pair of texts, but
        the data set has pairs.
    """
    if path.endswith(_TABLES):
        raise DataError(
            f"{path} is a table, and --input reads a text per line. Prepare the examples with "
            "prepare_data.py, without labels, and predict their split with --data_dir and "
            "--eval_split"
        )
    lines = [line.decode() for line in read_lines(path)]
    kind = pipeline.data.kind
    if not lines:
        raise DataError(f"{path} has no lines")
    if len(lines) * kind.max_length * 4 * len(_FEATURES) > _MAX_BYTES:
        most = _MAX_BYTES // (kind.max_length * 4 * len(_FEATURES))
        raise DataError(f"{path} has {len(lines)} lines; split it into files of at most {most}")
    texts = _columns(path, lines) if kind.has_pairs else [lines]
    return _encoded([pipeline.tokenizer.encode(side) for side in texts], pipeline)


def _columns(path, lines):
    pairs = [line.split("\t") for line in lines]
    for number, pair in enumerate(pairs, 1):
        if len(pair) != 2:
            raise DataError(
                f"{path}:{number}: {len(pair)} texts separated by tabs. The data set has pairs: "
                "write TEXT, a tab and TEXT"
            )
    return list(zip(*pairs))


def _encoded(sides, pipeline):
    kind, tokens = pipeline.data.kind, token_rows.StoredTokens.of(pipeline.tokenizer)
    room = kind.max_length - 1 - len(sides)
    ids, lengths = [], []
    places = np.zeros([2, len(sides[0]), kind.max_length], np.int32)
    for row, encodings in enumerate(zip(*sides)):
        whole = [len(encoding.ids) for encoding in encodings]
        kept = (
            token_rows.truncated_lengths(*whole, room) if len(whole) == 2 else (min(*whole, room),)
        )
        lengths.append(kept)
        start = 1
        for encoding, length in zip(encodings, kept):
            head = wordpiece.head_length(length, kind.truncate)
            if len(encoding.ids) <= length:
                head = length
            chosen = [*range(head), *range(len(encoding.ids) - length + head, len(encoding.ids))]
            ids += [encoding.ids[i] for i in chosen]
            for place, found in zip(places, (encoding.starts, encoding.ends)):
                place[row, start : start + length] = [found[i] for i in chosen]
            start += length + 1
    values = token_rows.block_values(
        np.array(ids, np.int32), np.array(lengths, np.int64), tokens, kind.max_length
    )
    return TextLines({name: values[name].astype(np.int32) for name in _FEATURES}, tuple(places))
