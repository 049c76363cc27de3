"""Texts and pairs of texts, and the rows of WordPiece ids that BERT reads.

    [CLS] text [SEP]    or    [CLS] text [SEP] second text [SEP]

Longer ones are truncated as by google-research/bert: the longer of two texts first, at its end.
With --truncate=middle, tokens are removed from the middle instead.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from input_fns import DataError, dataset_info
from input_fns.convert.source import Options, RawDataset, Row
from input_fns.convert.writer import content_name
from input_fns.dataset_info import Feature
from input_fns.text import wordpiece
from input_fns.text.wordpiece import WordPieceTokenizer
from input_fns.text.wordpiece_kind import WordPiece, WordPieceSplit

_VOCABULARY_FILE = "vocab.txt"
_ENCODE_AT_ONCE = 10_000


@dataclasses.dataclass(frozen=True)
class RawTexts:
    """A split of texts or pairs of texts; `encode` turns it into a `RawSplit`.

    Attributes:
      texts: the texts, and the second texts of pairs.
      labels: classes, int64 `[size]`, or None.
      scores: float32 `[size]` of a regression, or None.
      group_of: `[size]`, equal for texts that must stay in one split; None: equal texts.
      has_labels: False if the split can only be predicted; scores are NaN then.
    """

    texts: tuple[list[str], ...]
    labels: np.ndarray | None = None
    scores: np.ndarray | None = None
    group_of: np.ndarray | None = None
    has_labels: bool = True

    @property
    def groups(self) -> np.ndarray:
        """Groups that must stay in one split."""
        if self.group_of is not None:
            return self.group_of
        number_of: dict[tuple[str, ...], int] = {}
        numbers = (number_of.setdefault(row, len(number_of)) for row in zip(*self.texts))
        return np.fromiter(numbers, np.int64, len(self))

    def __len__(self) -> int:
        return len(self.texts[0])

    def take(self, indices: Sequence[int]) -> RawTexts:
        """Returns the split of these texts, in the order of the indices."""
        arrays = (self.labels, self.scores, self.group_of)
        return RawTexts(
            tuple([side[i] for i in indices] for side in self.texts),
            *(None if array is None else array[indices] for array in arrays),
            self.has_labels,
        )


@dataclasses.dataclass(frozen=True)
class RawTokenRows:
    """A `RawSplit` of rows of ids.

    Attributes:
      sides: token ids of the texts, truncated, and of the second texts.
      tokenizer: the tokenizer.
      max_length: tokens per row.
      labels: classes, int64 `[size]`, or None.
      scores: float32 `[size]`, or None.
      has_labels: see `RawTexts`.
    """

    sides: tuple[list[np.ndarray], ...]
    tokenizer: WordPieceTokenizer
    max_length: int
    labels: np.ndarray | None
    scores: np.ndarray | None
    has_labels: bool = True
    groups: None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of ids, mask and segments."""
        return len(self) * self.max_length * (np.dtype(self.tokenizer.dtype).itemsize + 2)

    def __len__(self) -> int:
        return len(self.sides[0])

    def __iter__(self) -> Iterator[Row]:
        features = row_features(self.tokenizer, self.max_length)
        if self.scores is not None:
            features["score"] = Feature("raw", "float32", ())
        for number, texts in enumerate(zip(*self.sides)):
            values = row_values(texts, self.tokenizer, self.max_length)
            if self.scores is not None:
                values["score"] = self.scores[number].astype("<f4").tobytes()
            yield Row(values, features)


def row_features(tokenizer: WordPieceTokenizer, max_length: int) -> dict[str, Feature]:
    """Returns the features of `row_values`."""
    dtypes = {"input_ids": tokenizer.dtype, "input_mask": "uint8", "segment_ids": "uint8"}
    return {name: Feature("raw", dtype, (max_length,)) for name, dtype in dtypes.items()}


def row_values(
    texts: Sequence[np.ndarray], tokenizer: WordPieceTokenizer, max_length: int
) -> dict[str, bytes]:
    """Returns input_ids, input_mask and segment_ids of a text or a pair that fits."""
    ids = np.full(max_length, tokenizer.pad_id, np.dtype(tokenizer.dtype).newbyteorder("<"))
    segments = np.zeros(max_length, np.uint8)
    ids[0], end = tokenizer.cls_id, 1
    for segment, text in enumerate(texts):
        start, end = end, end + len(text) + 1
        ids[start : end - 1], ids[end - 1] = text, tokenizer.sep_id
        segments[start:end] = segment
    mask = np.zeros(max_length, np.uint8)
    mask[:end] = 1
    return {
        "input_ids": ids.tobytes(),
        "input_mask": mask.tobytes(),
        "segment_ids": segments.tobytes(),
    }


def encode(
    raw: RawDataset,
    options: Options,
    progress=lambda line: None,
    held_out: Collection[str] = (),
) -> RawDataset:
    """Returns the data set with rows of ids.

    Args:
      raw: splits of `RawTexts`; `kind` has the task, and the texts that the source left out.
      options: see `tokenizer_from_options`; `max_length`; `truncate`.
      progress: function that prints a line.
      held_out: unused; texts of all splits are treated alike.

    Raises:
      DataError: the vocabulary is invalid, or cannot be learnt.
    """
    del held_out
    train = raw.splits.get("train")
    texts = None if train is None else [text for side in train.texts for text in side]
    tokenizer = tokenizer_from_options(options, texts, progress)
    splits, described = {}, {}
    for name, split in raw.splits.items():
        left_out = raw.kind.splits[name].left_out if name in raw.kind.splits else {}
        splits[name], described[name] = _encode_split(split, tokenizer, options, left_out)
        progress(f"{name}: {described[name].describe(len(splits[name]), options.max_length)}")
        if not split.has_labels:
            progress(f"{name}: no labels, so only --mode=predict can use it")
        num_empty = sum(not all(map(len, row)) for row in zip(*splits[name].sides))
        if num_empty:
            progress(f"{name}: {num_empty} of them without tokens, such as of invisible characters")
    return with_vocabulary(
        dataclasses.replace(raw, splits=splits), raw.kind, tokenizer, options, described
    )


def with_vocabulary(
    raw: RawDataset,
    draft: WordPiece,
    tokenizer: WordPieceTokenizer,
    options: Options,
    splits: dict[str, WordPieceSplit],
) -> RawDataset:
    """Returns the data set with the vocabulary file and complete metadata of WordPiece text.

    Args:
      raw: the data set.
      draft: `task` and `has_pairs` are used.
      tokenizer: the tokenizer.
      options: `max_length` and `truncate` are used.
      splits: metadata of the splits.
    """
    metadata = dataclasses.replace(
        draft,
        vocabulary=content_name(_VOCABULARY_FILE, tokenizer.vocab),
        vocab_size=tokenizer.vocab_size,
        max_length=options.max_length,
        lower_case=tokenizer.lower_case,
        splits=splits,
        truncate=options.truncate,
    )
    files = {**raw.files, metadata.vocabulary: tokenizer.vocab}
    return dataclasses.replace(raw, kind=metadata, files=files)


def draft(task: str, has_pairs: bool, left_out: dict[str, dict[str, int]]) -> WordPiece:
    """Returns metadata that `encode` completes.

    Args:
      task: one of `dataset_parts.TASKS`.
      has_pairs: whether an example has two texts.
      left_out: `{split: {reason: number of texts}}`.
    """
    splits = {name: WordPieceSplit(0, 0, 0, counts) for name, counts in left_out.items()}
    return WordPiece(task, "", 0, 0, True, has_pairs, splits)


def tokenizer_from_options(
    options: Options, texts: Iterable[str] | None, progress=lambda line: None
) -> WordPieceTokenizer:
    """Returns the tokenizer of `options.vocabulary`, or one that is learnt from texts.

    Args:
      options: `vocabulary`, or `vocab_size` to learn one; `lower_case`.
      texts: text of the training split, iterated twice; None without one.
      progress: function that prints a line.

    Raises:
      DataError: the vocabulary is invalid, or is not of text of that case, or cannot be learnt.
    """
    if options.vocabulary:
        path = _vocabulary_file(options)
        tokenizer = wordpiece.load(path, options.lower_case)
        _check_case(path, tokenizer)
        return tokenizer
    if texts is None:
        raise DataError("a vocabulary is learnt from 'train', which is missing: --vocabulary")
    progress(f"vocabulary: learning {options.vocab_size} WordPiece tokens from 'train'")
    return wordpiece.train(texts, options.vocab_size, options.lower_case)


def _vocabulary_file(options):
    """Returns the path of a vocabulary file, from its path or the folder of a data set."""
    path = options.vocabulary
    if not dataset_info.exists(path):
        return path
    found = dataset_info.read(path).kind
    if not isinstance(found, WordPiece):
        raise DataError(f"--vocabulary={path} is a data set without WordPiece text")
    if found.lower_case != options.lower_case:
        raise DataError(
            f"--vocabulary={path} was prepared with --lower_case={str(found.lower_case).lower()}: "
            "use the same here"
        )
    return os.path.join(path, found.vocabulary)


def _check_case(path, tokenizer):
    """Checks that a vocabulary is of text of the case that the tokenizer yields."""
    words = [piece for piece in tokenizer.pieces if not piece.startswith("[")]
    capitals = sum(piece != piece.lower() for piece in words)
    if tokenizer.lower_case and capitals > len(words) / 20:
        raise DataError(
            f"{path} has {capitals} pieces with capital letters, which lower-cased text never has: "
            "it belongs to a cased model. Add --lower_case=false"
        )
    if not tokenizer.lower_case and not capitals and any(p != p.upper() for p in words):
        raise DataError(
            f"{path} has no piece with a capital letter: it belongs to an uncased model. Remove "
            "--lower_case=false"
        )


def encode_all(tokenizer: WordPieceTokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    """Returns the token ids of each text as small arrays."""
    found = []
    for start in range(0, len(texts), _ENCODE_AT_ONCE):
        some = tokenizer.encode_ids(texts[start : start + _ENCODE_AT_ONCE])
        found += [np.array(ids, tokenizer.dtype) for ids in some]
    return found


def truncated_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """Returns the lengths of two texts, cut one token at a time off the longer one.

    The second is cut if both have the same length, as in google-research/bert.
    """
    if first + second <= room:
        return first, second
    if 2 * min(first, second) <= room:  # only the longer one is cut
        return (room - second, second) if first > second else (first, room - first)
    return room - room // 2, room // 2


def _encode_split(split: RawTexts, tokenizer, options, left_out):
    sides = [encode_all(tokenizer, texts) for texts in split.texts]
    room = options.max_length - 1 - len(sides)
    num_truncated = num_tokens = 0
    for number, row in enumerate(zip(*sides)):
        lengths = [len(ids) for ids in row]
        kept = [min(lengths[0], room)]
        if len(row) == 2:
            kept = truncated_lengths(*lengths, room)
        num_truncated += sum(kept) < sum(lengths)
        num_tokens += sum(kept) + 1 + len(sides)
        for side, length in zip(sides, kept):
            side[number] = _truncated(side[number], length, options.truncate)
    described = WordPieceSplit(
        len(split) + sum(left_out.values()), num_tokens, num_truncated, left_out
    )
    values = split.labels, split.scores, split.has_labels
    return RawTokenRows(tuple(sides), tokenizer, options.max_length, *values), described


def _truncated(ids, length, truncate):
    if len(ids) <= length:
        return ids
    head = wordpiece.head_length(length, truncate)
    return np.concatenate([ids[:head], ids[len(ids) - length + head :]])
