"""Tokenizes parallel text into rows of token ids of one length.

Rows of "train" are packed with several pairs to reduce padding: the n-th sentence of the source row
belongs to the n-th of the target row. Rows of other splits have one pair each, in order.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from common.names import counted
from input_fns import DataError, dataset_info
from input_fns.convert.options import Options
from input_fns.convert.runners import Runner
from input_fns.convert.shared_array import SharedArray, SharedRows
from input_fns.convert.source import BlockSplit, RawDataset, Rows, content_name
from input_fns.dataset_info import Feature
from input_fns.text import vocabulary
from input_fns.text.parallel_kind import Text, TextSplit
from input_fns.text.sources.parallel_text import RawText
from input_fns.text.vocabulary import Vocabulary

_VOCABULARY_FILE = "vocabulary.model"
_ENCODE_AT_ONCE = 10_000
_BLOCK_ROWS = 2**12
# First-fit packing over this many open rows.
_OPEN_ROWS = 64


@dataclasses.dataclass(frozen=True)
class RawTokens(BlockSplit):
    """A split of rows of tokens.

    Attributes:
      source: token ids of the sentences of each row.
      target: those of the target.
      max_length: tokens per row.
      dtype: dtype of the stored ids.
    """

    KEYS = ("source", "target")

    source: SharedRows
    target: SharedRows
    max_length: int
    dtype: str

    @property
    def num_bytes(self) -> int:
        """Bytes of the rows."""
        return len(self) * 2 * self.max_length * np.dtype(self.dtype).itemsize

    def blocks(self) -> Iterator[Rows]:
        """Yields all rows."""
        feature = Feature("raw", self.dtype, (self.max_length,))
        for begin in range(0, len(self), _BLOCK_ROWS):
            values = {}
            for name in ("source", "target"):
                some = getattr(self, name)[begin : begin + _BLOCK_ROWS]
                dtype = np.dtype(self.dtype).newbyteorder("<")
                values[name] = np.zeros([len(some), self.max_length], dtype)
                values[name][np.arange(self.max_length) < some.lengths[:, None]] = some.joined()
            yield Rows(values, {"source": feature, "target": feature})


def encode(
    raw: RawDataset, options: Options, progress: Callable[[str], None], runner: Runner
) -> RawDataset:
    """Returns the data set with rows of tokens.

    Args:
      raw: splits of `RawText`; empty and too long pairs are skipped in "train" and in what was
        held out of it.
      options: `vocabulary`, or `vocab_size`, `subwords` and `seed` to learn one; `max_length`.
      progress: function that prints a line.
      runner: runs functions on parts of the texts.

    Raises:
      DataError: a pair of another split of the source is longer than `max_length`.
    """
    if options.vocabulary:
        pieces = vocabulary.load(_vocabulary_file(options.vocabulary))
    else:
        train = raw.splits.get("train")
        if train is None:
            raise DataError("a vocabulary is learnt from 'train', which is missing: --vocabulary")
        lines = [*train.source, *train.target]
        progress(f"vocabulary: {options.subwords} pieces of {len(lines)} lines")
        pieces = vocabulary.train(lines, options.vocab_size, options.subwords, options.seed)
    splits, described = {}, {}
    for name, split in raw.splits.items():
        is_whole = name != "train" and name not in raw.held_out
        splits[name], described[name] = _encode_split(
            name, split, pieces, options, is_whole, runner
        )
        progress(f"{name}: {described[name].describe(len(splits[name]), options.max_length)}")
    text = Text(
        languages=options.languages,
        vocabulary=content_name(_VOCABULARY_FILE, pieces.model),
        vocab_size=pieces.size,
        max_length=options.max_length,
        splits=described,
    )
    return dataclasses.replace(raw, splits=splits, kind=text, files={text.vocabulary: pieces.model})


def _vocabulary_file(path):
    """Returns the path of a vocabulary file, from its path or the folder of a data set."""
    if not dataset_info.exists(path):
        return path
    text = dataset_info.read(path).kind
    if not isinstance(text, Text):
        raise DataError(f"--vocabulary={path} is a data set without text")
    return os.path.join(path, text.vocabulary)


def _encode_split(name, split: RawText, pieces: Vocabulary, options, is_whole, runner):
    dtype = "uint16" if pieces.size <= 2**16 else "int32"
    sides = [_encode_side(side, pieces, dtype, runner) for side in (split.source, split.target)]
    lengths = np.array([side.lengths for side in sides])  # [2, pairs]
    too_long = lengths.max(axis=0) > options.max_length
    if is_whole and too_long.any():
        first = np.flatnonzero(too_long)[0]
        raise DataError(
            f"split '{name}': {counted(too_long.sum(), 'pair')} of more than --max_length="
            f"{options.max_length} tokens, the first in line {split.numbers[first]}. None may be "
            f"missing in an evaluation: --max_length={lengths.max()} has room for all"
        )
    empty = (lengths == 1).any(axis=0) & (not is_whole)
    reasons = Counter({"empty": int(empty.sum()), "too long": int((too_long & ~empty).sum())})
    kept = np.flatnonzero(~empty & ~too_long)
    if not len(kept):
        raise DataError(f"split '{name}': none of its {len(empty)} pairs can be used: {+reasons}")
    rows = _pack(lengths, kept, options.max_length) if name == "train" else [[i] for i in kept]
    tokens = lengths[:, kept].sum(axis=1).tolist()
    described = TextSplit(len(kept), *tokens, left_out=dict(+reasons))
    joined = [_join_rows(side, rows, runner) for side in sides]
    return RawTokens(*joined, options.max_length, dtype), described


def _encode_side(lines, pieces, dtype, runner):
    """Returns the token ids of each line."""
    lengths = []

    def tokens():
        parts = (lines[i : i + _ENCODE_AT_ONCE] for i in range(0, len(lines), _ENCODE_AT_ONCE))
        for ids, of_part in runner.apply(functools.partial(_encode_part, pieces, dtype), parts):
            lengths.extend(of_part)
            yield ids

    return SharedRows.of(SharedArray.write(runner.folder, tokens()), np.array(lengths))


def _encode_part(pieces, dtype, lines):
    found = pieces.encode([line.decode() for line in lines])
    return np.array(list(itertools.chain.from_iterable(found)), dtype), list(map(len, found))


def _join_rows(side, rows, runner):
    """Returns the token ids of each row, those of its sentences one after the other."""
    order = np.array(list(itertools.chain.from_iterable(rows)))
    ends = np.cumsum(list(map(len, rows)))
    parts = (order[i : i + _ENCODE_AT_ONCE] for i in range(0, len(order), _ENCODE_AT_ONCE))
    values = SharedArray.write(runner.folder, (side[part].joined() for part in parts))
    return SharedRows.of(values, np.add.reduceat(side.lengths[order], [0, *ends[:-1]]))


def _pack(lengths, pairs, max_length):
    """Returns the pairs of each row, packed first-fit on both sides."""
    rows, is_open = [], np.zeros(_OPEN_ROWS, int)
    room = np.zeros([_OPEN_ROWS, 2], int)
    for pair in pairs.tolist():
        fits = (room >= lengths[:, pair]).all(axis=1)
        slot = int(fits.argmax())
        if not fits[slot]:
            # Close the fullest row and open a new one.
            slot = int(room.min(axis=1).argmin())
            is_open[slot], room[slot] = len(rows), max_length
            rows.append([])
        rows[is_open[slot]].append(pair)
        room[slot] -= lengths[:, pair]
    return rows
