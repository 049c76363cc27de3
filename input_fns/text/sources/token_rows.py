"""Texts and pairs of texts, and the rows of WordPiece ids that BERT reads.

    [CLS] text [SEP]    or    [CLS] text [SEP] second text [SEP]

Longer ones are truncated as by google-research/bert: the longer of two texts first, at its end.
With --truncate=middle, tokens are removed from the middle instead. With --truncate=windows a text
is several rows, which start every `doc_stride` tokens: no token is lost. Of a pair it is the second
text; each row has the first one, at most half of the row.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from common.constants import DOCUMENT_INDEX, WINDOWS
from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.convert.runners import Runner
from input_fns.convert.shared_array import SharedArray, SharedRows
from input_fns.convert.source import BlockSplit, RawDataset, RawSplit, Rows, numbered
from input_fns.dataset_info import Feature
from input_fns.text import wordpiece
from input_fns.text.sources import bert_vocabulary
from input_fns.text.wordpiece import WordPieceTokenizer
from input_fns.text.wordpiece_kind import WordPieceSplit

_BLOCK_TOKENS = 2**19


class StoredTokens(NamedTuple):
    """Values of a tokenizer that rows need; it has millions of bytes to send to a process."""

    dtype: str
    vocab_size: int
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int

    @classmethod
    def of(cls, tokenizer: WordPieceTokenizer) -> StoredTokens:
        """Returns those of a tokenizer."""
        return cls(*(getattr(tokenizer, name) for name in cls._fields))


@dataclasses.dataclass(frozen=True)
class RawTexts(RawSplit):
    """A split of texts or pairs of texts; `encode` turns it into a `RawSplit`.

    Attributes:
      texts: the texts, and the second texts of pairs.
      labels: classes, int64 `[size]`, or None.
      scores: float32 `[size]` of a regression, or None.
      group_of: `[size]`, equal for texts that must stay in one split; None: equal texts.
      has_labels: False if the split can only be predicted; scores and targets are NaN then.
      targets: see `RawSplit`.
      missing: names of label columns that the file of a split without labels lacks.
    """

    KEYS = ("texts", "labels", "scores", "group_of", "targets")

    texts: tuple[Sequence[str], ...]
    labels: np.ndarray | None = None
    scores: np.ndarray | None = None
    group_of: np.ndarray | None = None
    has_labels: bool = True
    targets: np.ndarray | None = None
    missing: tuple[str, ...] = ()

    @property
    def groups(self) -> np.ndarray:
        """Groups that must stay in one split."""
        if self.group_of is not None:
            return self.group_of
        return numbered(zip(*self.texts), len(self))

    def __len__(self) -> int:
        return len(self.texts[0])


@dataclasses.dataclass(frozen=True)
class RawTokenRows(BlockSplit):
    """A split of rows of ids.

    Attributes:
      ids: token ids of each row, truncated: of its text, then of its second text.
      lengths: number of ids of each text, int32 `[size, 1]`, of pairs `[size, 2]`.
      tokens: of the vocabulary.
      max_length: tokens per row.
      labels: classes, int64 `[size]`, or None.
      scores: float32 `[size]`, or None.
      has_labels, targets: see `RawTexts`.
      documents: number of the text of each row in the split, int32 `[size]`, of windows; or None.
    """

    KEYS = ("ids", "lengths", "labels", "scores", "targets", "documents")

    ids: SharedRows
    lengths: np.ndarray
    tokens: StoredTokens
    max_length: int
    labels: np.ndarray | None = None
    scores: np.ndarray | None = None
    has_labels: bool = True
    targets: np.ndarray | None = None
    documents: np.ndarray | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of ids, mask and segments."""
        return len(self) * self.max_length * (np.dtype(self.tokens.dtype).itemsize + 2)

    def blocks(self) -> Iterator[Rows]:
        """Yields all rows."""
        features = row_features(self.tokens, self.max_length)
        if self.scores is not None:
            features["score"] = Feature("raw", "float32", ())
        if self.documents is not None:
            features[DOCUMENT_INDEX] = Feature("raw", "int32", ())
        at_once = max(1, _BLOCK_TOKENS // self.max_length)
        for begin in range(0, len(self), at_once):
            some = self.part(begin, begin + at_once)
            values = block_values(some.ids.joined(), some.lengths, self.tokens, self.max_length)
            if self.scores is not None:
                values["score"] = some.scores.astype("<f4")
            if self.documents is not None:
                values[DOCUMENT_INDEX] = some.documents.astype("<i4")
            yield Rows(values, features, some.labels)


def row_features(tokens: StoredTokens, max_length: int) -> dict[str, Feature]:
    """Returns the features of `row_values`."""
    dtypes = {"input_ids": tokens.dtype, "input_mask": "uint8", "segment_ids": "uint8"}
    return {name: Feature("raw", dtype, (max_length,)) for name, dtype in dtypes.items()}


def row_values(
    texts: Sequence[np.ndarray], tokens: StoredTokens, max_length: int
) -> dict[str, bytes]:
    """Returns input_ids, input_mask and segment_ids of a text or a pair that fits."""
    ids = np.full(max_length, tokens.pad_id, np.dtype(tokens.dtype).newbyteorder("<"))
    segments = np.zeros(max_length, np.uint8)
    ids[0], end = tokens.cls_id, 1
    for segment, text in enumerate(texts):
        start, end = end, end + len(text) + 1
        ids[start : end - 1], ids[end - 1] = text, tokens.sep_id
        segments[start:end] = segment
    mask = np.zeros(max_length, np.uint8)
    mask[:end] = 1
    return {
        "input_ids": ids.tobytes(),
        "input_mask": mask.tobytes(),
        "segment_ids": segments.tobytes(),
    }


def block_values(
    ids: np.ndarray, lengths: np.ndarray, tokens: StoredTokens, max_length: int
) -> dict[str, np.ndarray]:
    """Returns the values of several rows, each as `row_values`.

    Args:
      ids: token ids of all texts, one after the other.
      lengths: number of ids of the texts of each row, `[rows, texts]`.
      tokens: of the vocabulary.
      max_length: tokens per row.

    Returns:
      `{feature: array [rows, max_length]}`, little-endian.
    """
    place, dtype = np.arange(max_length), np.dtype(tokens.dtype).newbyteorder("<")
    found = np.full([len(lengths), max_length], tokens.pad_id, dtype)
    segments = np.zeros(found.shape, np.uint8)
    is_text = np.zeros(found.shape, bool)
    found[:, 0], end = tokens.cls_id, np.ones([len(lengths), 1], np.int64)
    for segment, length in enumerate(lengths.T):
        start, end = end, end + length[:, None] + 1
        is_text |= (place >= start) & (place < end - 1)
        segments[(place >= start) & (place < end)] = segment
        np.put_along_axis(found, end - 1, tokens.sep_id, axis=1)
    found[is_text] = ids
    return {
        "input_ids": found,
        "input_mask": (place < end).astype(np.uint8),
        "segment_ids": segments,
    }


def encode(
    raw: RawDataset, options: Options, progress: Callable[[str], None], runner: Runner
) -> RawDataset:
    """Returns the data set with rows of ids.

    Args:
      raw: splits of `RawTexts`; `kind` has the task, and the texts that the source left out.
      options: see `bert_vocabulary.tokenizer_from_options`; `max_length`; `truncate`; `doc_stride`.
      progress: function that prints a line.
      runner: runs functions on parts of the texts.

    Raises:
      DataError: the vocabulary is invalid, or cannot be learnt; or windows of texts with several
        labels.
    """
    if options.truncate == WINDOWS:
        raw = _with_windows(raw, options)
    train = raw.splits.get("train")
    texts = train and (
        some for side in train.texts for (some,) in bert_vocabulary.row_parts((side,))
    )
    tokenizer = bert_vocabulary.tokenizer_from_options(options, texts, progress, runner)
    splits, described = {}, {}
    for name, split in raw.splits.items():
        left_out = raw.kind.splits[name].left_out if name in raw.kind.splits else {}
        splits[name], described[name] = _encode_split(split, tokenizer, options, left_out, runner)
        progress(f"{name}: {described[name].describe(len(splits[name]), options.max_length)}")
        if not split.has_labels:
            columns = " and ".join(f"'{column}'" for column in split.missing)
            why = f" (no column {columns})" if columns else ""
            progress(f"{name}: no labels{why}, so only --mode=predict can use it")
        num_empty = int((splits[name].lengths == 0).any(axis=1).sum())
        if num_empty and len(split.texts) == 2:
            progress(
                f"{name}: {num_empty} of them have a text without tokens, such as an empty one"
            )
        elif num_empty:
            progress(f"{name}: {num_empty} of them without tokens, such as of invisible characters")
    return bert_vocabulary.with_vocabulary(
        dataclasses.replace(raw, splits=splits), raw.kind, tokenizer, options, described
    )


def encode_all(
    tokenizer: WordPieceTokenizer, texts: Iterable[str], runner: Runner
) -> list[np.ndarray]:
    """Returns the token ids of each text."""
    found = []
    encode_part = functools.partial(_encode_part, tokenizer)
    for ids, ends in runner.apply(encode_part, bert_vocabulary.parts(texts)):
        found += [ids[start:end] for start, end in zip([0, *ends], ends)]
    return found


def _encode_part(tokenizer, texts):
    """Returns the joined ids of texts, and where each ends."""
    found = tokenizer.encode_ids(texts)
    ids = np.fromiter(itertools.chain.from_iterable(found), tokenizer.dtype)
    return ids, list(itertools.accumulate(map(len, found)))


def truncated_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """Returns the lengths of two texts, cut one token at a time off the longer one.

    The second is cut if both have the same length, as in google-research/bert.
    """
    if first + second <= room:
        return first, second
    if 2 * min(first, second) <= room:  # only the longer one is cut
        return (room - second, second) if first > second else (first, room - first)
    return room - room // 2, room // 2


def _with_windows(raw, options):
    """Returns the data set with the property of its windows.

    Raises:
      DataError: its texts cannot have windows.
    """
    if raw.target:
        raise DataError(
            f"--truncate=windows is not valid for --task={options.task}: it needs texts or pairs "
            "with one class or one number each. Use --truncate=end or middle"
        )
    return dataclasses.replace(raw, properties={**raw.properties, "doc_stride": options.doc_stride})


def window_starts(length: int, room: int, stride: int) -> range:
    """Returns the first token of each window of a text, one at least; the last ends with the text.

    Args:
      length: tokens of the text.
      room: tokens of a window.
      stride: tokens from the start of a window to that of the next, at most `room`.
    """
    return range(0, max(0, -(-(length - room) // stride)) * stride + 1, stride)


def _encode_split(split: RawTexts, tokenizer, options, left_out, runner):
    room, has_windows = options.max_length - 1 - len(split.texts), options.truncate == WINDOWS
    encode_rows = functools.partial(_encode_rows, tokenizer, room, options.truncate)
    if has_windows:
        encode_rows = functools.partial(_encode_windows, tokenizer, room, options.doc_stride)
    lengths, counts, num_truncated = [], [], 0

    def ids():
        nonlocal num_truncated
        for of_part, lengths_of_part, counts_of_part, truncated in runner.apply(
            encode_rows, bert_vocabulary.row_parts(split.texts)
        ):
            lengths.append(lengths_of_part)
            counts.append(counts_of_part)
            num_truncated += truncated
            yield of_part

    shared = SharedArray.write(runner.folder, ids())
    lengths = np.concatenate(lengths)
    num_tokens = int(lengths.sum()) + len(lengths) * (1 + len(split.texts))
    documents = np.repeat(np.arange(len(split), dtype=np.int32), np.concatenate(counts))
    labels, scores = (
        None if values is None else values[documents] for values in (split.labels, split.scores)
    )
    described = WordPieceSplit(
        len(split) + sum(left_out.values()), num_tokens, num_truncated, left_out
    )
    rows = RawTokenRows(
        SharedRows.of(shared, lengths.sum(axis=1)),
        lengths,
        StoredTokens.of(tokenizer),
        options.max_length,
        labels,
        scores,
        split.has_labels,
        split.targets,
        documents if has_windows else None,
    )
    return rows, described


def _encode_rows(tokenizer, room, truncate, texts):
    """Encodes some rows.

    Returns:
      Joined ids, lengths `[rows, texts]`, number of rows of each, and how many are cut.
    """
    ids, lengths, num_truncated = [], [], 0
    for row in zip(*(tokenizer.encode_ids(of_side) for of_side in texts)):
        whole = tuple(map(len, row))
        kept = truncated_lengths(*whole, room) if len(row) == 2 else (min(whole[0], room),)
        num_truncated += kept != whole
        lengths.append(kept)
        for text, length in zip(row, kept):
            ids += _truncated(text, length, truncate)
    counts = np.ones(len(lengths), np.int32)
    return np.array(ids, tokenizer.dtype), np.array(lengths, np.int32), counts, num_truncated


def _encode_windows(tokenizer, room, doc_stride, texts):
    """Encodes the windows of some texts or second texts; returns the same as `_encode_rows`."""
    ids, lengths, counts, num_truncated = [], [], [], 0
    for *first, text in zip(*(tokenizer.encode_ids(of_side) for of_side in texts)):
        kept = [ids_of_first[: room // 2] for ids_of_first in first]  # none, or that of a pair
        num_truncated += kept != first
        left = room - sum(map(len, kept))
        starts = window_starts(len(text), left, min(left, doc_stride))
        for start in starts:
            row = [*kept, text[start : start + left]]
            ids += itertools.chain.from_iterable(row)
            lengths.append(list(map(len, row)))
        counts.append(len(starts))
    dtype = tokenizer.dtype
    return np.array(ids, dtype), np.array(lengths, np.int32), np.array(counts), num_truncated


def _truncated(ids, length, truncate):
    if len(ids) <= length:
        return ids
    head = wordpiece.head_length(length, truncate)
    return ids[:head] + ids[len(ids) - length + head :]
