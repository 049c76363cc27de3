"""Tokenizes documents into rows of token ids for language models.

The documents of a split are one sequence, with `END_OF_TEXT` before, between and after them. A row
is the last token of the row before it, and `max_length` more, which it predicts. So each token of
the text, and the end of each document, is predicted once.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterator

import numpy as np

from common.constants import TOKENIZERS
from input_fns import DataError, dataset_info
from input_fns.convert.options import Options
from input_fns.convert.runners import Runner
from input_fns.convert.shared_array import SharedArray
from input_fns.convert.source import BlockSplit, RawDataset, Rows, content_name
from input_fns.dataset_info import Feature
from input_fns.text import tokenizer as tokenizers
from input_fns.text.sources.bert_vocabulary import parts
from input_fns.text.sources.lm_text import RawDocuments
from input_fns.text.tokenizer import Tokenizer
from input_fns.text.tokens_kind import Tokens, TokensSplit

_BLOCK_ROWS = 2**10


@dataclasses.dataclass(frozen=True)
class RawRows(BlockSplit):
    """A split of rows of tokens.

    Attributes:
      rows: numbers of the rows, from 0.
      ids: the sequence of the whole split.
      num_bytes_of: bytes of each token, int32 `[vocab_size]`.
      max_length: predicted tokens per row.
    """

    KEYS = ("rows",)

    rows: range
    ids: SharedArray
    num_bytes_of: np.ndarray
    max_length: int

    @property
    def num_bytes(self) -> int:
        """Bytes of the rows."""
        return len(self) * sum(feature.num_bytes for feature in self._features.values())

    @property
    def _features(self):
        number = Feature("raw", "int32", ())
        dtype = np.dtype(self.ids.dtype).name
        tokens = Feature("raw", dtype, (self.max_length + 1,))
        return {"tokens": tokens, "num_tokens": number, "num_bytes": number}

    def blocks(self) -> Iterator[Rows]:
        """Yields all rows."""
        for begin in range(0, len(self), _BLOCK_ROWS):
            yield self._block(self.rows[begin : begin + _BLOCK_ROWS])

    def _block(self, rows):
        length, total = self.max_length, self.ids.shape[0]
        first, last = rows[0] * length, min(rows[-1] * length + length + 1, total)
        ids = self.ids.read(first, last)
        padded = np.zeros(len(rows) * length + 1, ids.dtype)
        padded[: len(ids)] = ids
        places = np.arange(len(rows))[:, np.newaxis] * length + np.arange(length + 1)
        is_predicted = places < len(ids)
        is_predicted[:, 0] = False  # the row before predicts it
        tokens = padded[places]
        num_bytes = np.where(is_predicted, self.num_bytes_of[tokens], 0).sum(axis=1)
        values = {
            "tokens": tokens,
            "num_tokens": is_predicted.sum(axis=1).astype("<i4"),
            "num_bytes": num_bytes.astype("<i4"),
        }
        return Rows(values, self._features)


def encode(
    raw: RawDataset, options: Options, progress: Callable[[str], None], runner: Runner
) -> RawDataset:
    """Returns the data set with rows of tokens.

    Args:
      raw: splits of `RawDocuments`.
      options: `vocabulary`, or `tokenizer` and `vocab_size` to learn one; `max_length`.
      progress: function that prints a line.
      runner: runs functions on parts of the texts.

    Raises:
      DataError: the vocabulary is invalid, or lacks a character.
    """
    tokenizer = _tokenizer(raw, options, progress)
    splits, described = {}, {}
    for name, split in raw.splits.items():
        try:
            splits[name], described[name] = _encode_split(split, tokenizer, options, runner)
        except DataError as error:
            raise DataError(f"split '{name}': {error}") from error
        progress(f"{name}: {described[name].describe(len(splits[name]), options.max_length)}")
    kind = Tokens(
        vocabulary=content_name(tokenizers.FILE, tokenizer.content),
        vocab_size=tokenizer.size,
        end_of_text=tokenizer.end_of_text,
        max_length=options.max_length,
        splits=described,
    )
    files = {kind.vocabulary: tokenizer.content}
    return dataclasses.replace(raw, splits=splits, kind=kind, files=files)


def _tokenizer(raw, options, progress):
    """Returns the tokenizer of --vocabulary, of all characters, or one learnt from "train"."""
    if options.vocabulary:
        return tokenizers.load(vocabulary_path(options.vocabulary))
    if options.tokenizer == TOKENIZERS[1]:
        texts = itertools.chain.from_iterable(split.texts for split in raw.splits.values())
        return tokenizers.characters(map(set, texts))
    train = raw.splits.get("train")
    if train is None:
        raise DataError("a vocabulary is learnt from 'train', which is missing: --vocabulary")
    progress(f"vocabulary: learning {options.vocab_size} tokens of byte-level BPE from 'train'")
    return tokenizers.train(train.texts, options.vocab_size)


def vocabulary_path(path: str) -> str:
    """Returns the path of the tokenizer of a prepared data set; of others `path`."""
    if not dataset_info.exists(path):
        return path
    kind = dataset_info.read(path).kind
    if not isinstance(kind, Tokens):
        raise DataError(f"--vocabulary={path} is a data set without text for language models")
    return os.path.join(path, kind.vocabulary)


def _encode_split(split: RawDocuments, tokenizer: Tokenizer, options, runner):
    num_bytes = sum(len(text.encode()) for text in split.texts)
    end = np.array([tokenizer.end_of_text], tokenizer.dtype)
    encode_part = functools.partial(_encode_part, tokenizer)
    blocks = itertools.chain([end], runner.apply(encode_part, parts(split.texts)))
    ids = SharedArray.write(runner.folder, blocks)
    num_tokens = ids.shape[0] - 1
    rows = range(-(-num_tokens // options.max_length))
    left_out = {"documents without a text": split.num_empty} if split.num_empty else {}
    described = TokensSplit(len(split.texts), num_tokens, num_bytes, left_out)
    return RawRows(rows, ids, tokenizer.num_bytes, options.max_length), described


def _encode_part(tokenizer, texts):
    """Returns the ids of documents, each with its end of text."""
    end = [tokenizer.end_of_text]
    blocks = (ids for document in tokenizer.encode(texts) for ids in (document, end))
    return np.concatenate(list(blocks)).astype(tokenizer.dtype)
