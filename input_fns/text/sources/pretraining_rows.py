"""Pairs of sentences with masked tokens for the pre-training of BERT (arXiv:1810.04805).

Pairs and masks are distributed as by google-research/bert's create_pretraining_data.py. Unlike
there, memory does not grow with the tokens: they and the places of the pairs are in temporary
files, and a pair is masked when it is written. The memory holds about 8 bytes per sentence,
4 per row and 50 per document.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import random
import tempfile
from array import array
from collections.abc import Callable

import numpy as np

from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.convert.runners import Runner
from input_fns.convert.source import RawDataset, RawSplit, Row
from input_fns.dataset_info import Feature
from input_fns.text.sources import bert_vocabulary, token_rows
from input_fns.text.sources.pretraining_pairs import Tokens, draw_pairs, mask, words_of
from input_fns.text.sources.pretraining_text import RawDocuments
from input_fns.text.sources.token_rows import StoredTokens
from input_fns.text.wordpiece_kind import WordPieceSplit

_ENCODE_AT_ONCE = 10_000
_PAIRS_AT_ONCE = 100_000
# A pair: where its two texts start in the tokens, and their lengths.
_PAIR = np.dtype(
    [
        ("first", np.int64),
        ("second", np.int64),
        ("first_length", np.uint16),
        ("second_length", np.uint16),
        ("is_random", np.uint8),
    ]
)


@dataclasses.dataclass(frozen=True)
class RawPairs(RawSplit):
    """A split of masked pairs in random order.

    Attributes:
      ids: token ids of the texts.
      pairs: `_PAIR` `[pairs]`.
      order: place in `pairs` of each row.
      tokens: of the vocabulary.
      continues: whether each id continues a word, to mask whole words; else None.
      options: see `encode`.
      numbers: number of the pair of each row, for its random numbers; None: `order`.
    """

    KEYS = ("order", "numbers")

    ids: np.ndarray
    pairs: np.ndarray
    order: np.ndarray
    tokens: StoredTokens
    continues: list[bool] | None
    options: Options
    numbers: np.ndarray | None = None

    @functools.cached_property
    def _features(self):
        room = num_predictions(self.options)
        return {
            **token_rows.row_features(self.tokens, self.options.max_length),
            "masked_lm_positions": Feature("raw", "uint16", (room,)),
            "masked_lm_ids": Feature("raw", self.tokens.dtype, (room,)),
            "masked_lm_weights": Feature("raw", "uint8", (room,)),
            "next_sentence_labels": Feature("raw", "uint8", ()),
        }

    def part(self, begin: int, end: int) -> RawPairs:
        """Returns the examples from `begin` to `end`, with a copy of their tokens."""
        numbers = self.order[begin:end]
        pairs = self.pairs[numbers]
        texts = [
            self.ids[start : start + length]
            for pair in pairs.tolist()
            for start, length in zip(pair[:2], pair[2:4])
        ]
        lengths = np.array([len(text) for text in texts], np.int64)
        starts = (np.cumsum(lengths) - lengths).reshape(-1, 2)
        pairs["first"], pairs["second"] = starts.T
        order = np.arange(len(pairs))
        return dataclasses.replace(
            self, ids=np.concatenate(texts), pairs=pairs, order=order, numbers=numbers
        )

    def read(self, i: int) -> Row:
        """Returns the row of a pair with its masks."""
        length, room = self.options.max_length, num_predictions(self.options)
        start_a, start_b, size_a, size_b, is_random = self.pairs[self.order[i]].tolist()
        ids = [
            *self.ids[start_a : start_a + size_a].tolist(),
            *self.ids[start_b : start_b + size_b].tolist(),
        ]
        share = round((len(ids) + 3) * self.options.masked_lm_prob)
        # One seed per pair: the masks do not depend on the order.
        number = int(self.order[i] if self.numbers is None else self.numbers[i])
        rng = random.Random((self.options.seed << 40) + number)
        words = words_of(ids, self.continues)
        chosen, masked = mask(ids, words, min(room, max(1, share)), self.tokens, rng)
        values = token_rows.row_values((masked[:size_a], masked[size_a:]), self.tokens, length)
        for name, numbers in {
            # After [CLS], and after the [SEP] of the first text.
            "masked_lm_positions": [i + 1 + (i >= size_a) for i in chosen],
            "masked_lm_ids": [ids[i] for i in chosen],
            "masked_lm_weights": [1] * len(chosen),
        }.items():
            padded = np.zeros(room, np.dtype(self._features[name].dtype).newbyteorder("<"))
            padded[: len(numbers)] = numbers
            values[name] = padded.tobytes()
        values["next_sentence_labels"] = bytes([is_random])
        return Row(values, self._features)


def num_predictions(options: Options) -> int:
    """Returns the size of the masked features."""
    return options.max_predictions_per_seq or math.ceil(options.max_length * options.masked_lm_prob)


def encode(
    raw: RawDataset, options: Options, progress: Callable[[str], None], runner: Runner
) -> RawDataset:
    """Returns the data set with rows of masked pairs.

    Args:
      raw: splits of `RawDocuments`.
      options: see `bert_vocabulary.tokenizer_from_options`; those of masked pairs.
      progress: function that prints a line.
      runner: runs functions on parts of the texts.

    Raises:
      DataError: the vocabulary is invalid, or a split has fewer than two documents.
    """
    if options.masked_lm_prob == 0:
        raise DataError("--masked_lm_prob=0 masks no token: it must be above 0")
    if num_predictions(options) > options.max_length:
        raise DataError(
            f"--max_predictions_per_seq={options.max_predictions_per_seq} is more than "
            f"--max_length={options.max_length}"
        )
    train = raw.splits.get("train")
    texts = train and bert_vocabulary.parts(train.sentences)
    tokenizer = bert_vocabulary.tokenizer_from_options(options, texts, progress, runner)
    continues = None
    if options.whole_word_mask:
        continues = [piece.startswith("##") for piece in tokenizer.pieces]
    splits, described = {}, {}
    for name, split in raw.splits.items():
        tokens, num_empty = _tokenize(name, split, tokenizer, progress)
        # Masks of an evaluation need not differ between epochs.
        repeats = options.dupe_factor if name == "train" else 1
        rng = random.Random(f"{options.seed} {name}")
        pairs, num_truncated = _store_pairs(draw_pairs(tokens, repeats, options, rng))
        size_dtype = np.uint32 if len(pairs) < 2**32 else np.int64
        order = np.arange(len(pairs), dtype=size_dtype)
        np.random.default_rng(options.seed).shuffle(order)
        splits[name] = RawPairs(
            tokens.ids, pairs, order, StoredTokens.of(tokenizer), continues, options
        )
        num_tokens = sum(int(pairs[f"{side}_length"].sum()) for side in ("first", "second"))
        described[name] = WordPieceSplit(
            num_texts=len(tokens.starts) - 1 + num_empty,
            num_tokens=num_tokens + 3 * len(pairs),
            num_truncated=num_truncated,
            left_out={"lines without tokens": num_empty} if num_empty else {},
        )
        progress(
            f"{name}: {tokens.num_documents} documents, each {repeats} times: "
            f"{described[name].describe(len(pairs), options.max_length)}"
        )
    raw = dataclasses.replace(raw, splits=splits)
    return bert_vocabulary.with_vocabulary(raw, raw.kind, tokenizer, options, described)


def _tokenize(name, split: RawDocuments, tokenizer, progress):
    """Returns the `Tokens` of a split, and the number of lines without tokens."""
    starts, documents, end, num_empty = array("q", [0]), array("q", [0]), 0, 0
    with tempfile.TemporaryFile() as file:
        for some in _in_batches(split):
            found = iter(tokenizer.encode_ids([line for document in some for line in document]))
            for document in some:
                for ids in itertools.islice(found, len(document)):
                    end += len(ids)
                    num_empty += not ids
                    if ids:
                        file.write(np.array(ids, tokenizer.dtype).tobytes())
                        starts.append(end)
                if len(starts) - 1 > documents[-1]:
                    documents.append(len(starts) - 1)
            progress(f"{name}: {len(documents) - 1}/{len(split)} documents, {end} tokens")
        if len(documents) < 3:
            raise DataError(
                f"split '{name}' has {len(documents) - 1} document(s) with tokens, and needs 2 at "
                "least: the second text of a pair may be of another document. Put empty lines "
                "between documents"
            )
        file.flush()
        ids = np.memmap(file, tokenizer.dtype, "r", shape=(end,))  # keeps the file
    return Tokens(ids, *(np.frombuffer(a, np.int64) for a in (starts, documents))), num_empty


def _in_batches(documents):
    """Yields lists of documents of some sentences in all."""
    some, count = [], 0
    for document in documents:
        some.append(document)
        count += len(document)
        if count >= _ENCODE_AT_ONCE:
            yield some
            some, count = [], 0
    if some:
        yield some


def _store_pairs(drawn):
    """Returns an array of pairs in a temporary file, and the number of truncated ones."""
    size = num_truncated = 0
    with tempfile.TemporaryFile() as file:
        while some := list(itertools.islice(drawn, _PAIRS_AT_ONCE)):
            file.write(np.array([pair for pair, _ in some], _PAIR).tobytes())
            size += len(some)
            num_truncated += sum(is_truncated for _, is_truncated in some)
        file.flush()
        return np.memmap(file, _PAIR, "r", shape=(size,)), num_truncated
