"""The vocabulary of text for BERT, given or learnt, and the metadata of its rows."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from input_fns import DataError, dataset_info
from input_fns.convert.options import Options
from input_fns.convert.runners import Runner
from input_fns.convert.shared_array import SharedTexts
from input_fns.convert.source import RawDataset, chosen, content_name
from input_fns.text import encoder_vocabulary, wordpiece
from input_fns.text.wordpiece import WordPieceTokenizer
from input_fns.text.wordpiece_kind import WordPiece, WordPieceSplit

_PART_CHARACTERS = 2**21


def with_vocabulary(
    raw: RawDataset,
    draft: WordPiece,
    tokenizer: WordPieceTokenizer,
    options: Options,
    splits: dict[str, WordPieceSplit],
) -> RawDataset:
    """Returns the data set with the vocabulary file and the completed metadata of a draft."""
    metadata = dataclasses.replace(
        draft,
        vocabulary=content_name(tokenizer.file_name, tokenizer.vocab),
        vocab_size=tokenizer.vocab_size,
        max_length=options.max_length,
        lower_case=tokenizer.lower_case,
        strip_accents=options.strip_accents,
        splits=splits,
        truncate=options.truncate,
    )
    files = {**raw.files, metadata.vocabulary: tokenizer.vocab}
    return dataclasses.replace(raw, kind=metadata, files=files)


def draft(task: str, has_pairs: bool, left_out: dict[str, dict[str, int]]) -> WordPiece:
    """Returns metadata that `encode` completes.

    Args:
      task: one of `common.constants.WORDPIECE_TASKS`.
      has_pairs: whether an example has two texts.
      left_out: `{split: {reason: number of texts}}`.
    """
    splits = {name: WordPieceSplit(0, 0, 0, counts) for name, counts in left_out.items()}
    return WordPiece(task, "", 0, 0, True, has_pairs, splits)


def tokenizer_from_options(
    options: Options,
    texts: Iterable[Iterable[str]] | None,
    progress: Callable[[str], None],
    runner: Runner,
) -> WordPieceTokenizer:
    """Returns the tokenizer of `options.vocabulary`, or one that is learnt from texts.

    Args:
      options: `vocabulary`, or `vocab_size` to learn one; `lower_case`; `strip_accents`.
      texts: parts of the text of the training split; None without one.
      progress: function that prints a line.
      runner: counts the words of each part, which is pickled.

    Raises:
      DataError: the vocabulary is invalid, or is not of text of that case, or cannot be learnt.
    """
    if options.vocabulary:
        path = _vocabulary_file(options)
        tokenizer = encoder_vocabulary.load(path, options.lower_case, options.strip_accents)
        if path == options.vocabulary:  # a data set states its case, whatever its text had
            _check_case(path, tokenizer)
        return tokenizer
    if texts is None:
        raise DataError("a vocabulary is learnt from 'train', which is missing: --vocabulary")
    progress(f"vocabulary: learning {options.vocab_size} WordPiece tokens from 'train'")
    words: Counter[str] = Counter()
    rules = {"lower_case": options.lower_case, "strip_accents": options.strip_accents}
    count = functools.partial(wordpiece.count_words, **rules)
    for of_part in runner.apply(count, texts):
        words.update(of_part)
    return wordpiece.train(words, options.vocab_size, **rules)


def parts(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yields texts in parts of some million characters, for `Runner.apply`."""
    some, size = [], 0
    for text in texts:
        some.append(text)
        size += len(text)
        if size >= _PART_CHARACTERS:
            yield some
            some, size = [], 0
    if some:
        yield some


def row_parts(columns: Sequence[Sequence[str]]) -> Iterator[tuple[Sequence[str], ...]]:
    """Yields rows of columns of texts in parts as `parts`."""
    sizes = (
        column.rows.lengths
        if isinstance(column, SharedTexts)
        else np.fromiter(map(len, column), np.int64, len(column))
        for column in columns
    )
    part_of = np.cumsum(sum(sizes), dtype=np.int64) // _PART_CHARACTERS
    bounds = [0, *(np.flatnonzero(np.diff(part_of)) + 1).tolist(), len(part_of)]
    for begin, end in zip(bounds, bounds[1:]):
        yield chosen(tuple(columns), slice(begin, end))


def _vocabulary_file(options):
    """Returns the path of a vocabulary file, from its path or the folder of a data set."""
    path = options.vocabulary
    if not dataset_info.exists(path):
        return path
    found = dataset_info.read(path).kind
    if not isinstance(found, WordPiece):
        raise DataError(f"--vocabulary={path} is a data set without WordPiece text")
    for name in ("lower_case", "strip_accents"):
        value = getattr(found, name)
        if value != getattr(options, name):
            raise DataError(
                f"--vocabulary={path} was prepared with --{name}={str(value).lower()}: use the "
                "same here"
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
