"""Pairs of sentences with masked tokens for the pre-training of BERT (arXiv:1810.04805).

Pairs and masks are distributed as by google-research/bert's create_pretraining_data.py. Unlike
there, worker processes share the work, and memory does not grow with the tokens: they and the
places of the pairs are in temporary files, and a pair is masked when it is written. The memory
holds 4 bytes per document, and nothing per row.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import math
import random
from array import array
from collections.abc import Callable

import numpy as np

from common.names import counted
from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.convert.permutation import permuted
from input_fns.convert.runners import Runner
from input_fns.convert.shared_array import SharedArray
from input_fns.convert.source import RawDataset, RawSplit, Row
from input_fns.dataset_info import Feature
from input_fns.text.sources import bert_vocabulary, token_rows
from input_fns.text.sources.documents import Part, Sentences, cut_split
from input_fns.text.sources.pretraining_pairs import (
    PAIR,
    TokenPart,
    Tokens,
    draw_pairs,
    mask,
    words_of,
)
from input_fns.text.sources.token_rows import StoredTokens
from input_fns.text.wordpiece_kind import WordPieceSplit

_WRITE_AT_ONCE = 50_000  # tokens or pairs
# A vocabulary is learnt from parts of larger texts, at equal distances.
_LEARN_BYTES = 2**30


@dataclasses.dataclass(frozen=True)
class RawPairs(RawSplit):
    """A split of masked pairs in random order.

    Attributes:
      rows: numbers of the rows, from 0.
      size: number of rows of the whole split.
      ids: token ids of each part of the documents.
      pairs: `PAIR` `[pairs]` of each part, in the order of the documents.
      tokens: of the vocabulary.
      continues: whether each id continues a word, to mask whole words; else None.
      options: see `encode`.
    """

    KEYS = ("rows",)

    rows: range
    size: int
    ids: tuple[SharedArray, ...]
    pairs: tuple[SharedArray, ...]
    tokens: StoredTokens
    continues: list[bool] | None
    options: Options

    @property
    def num_bytes(self) -> int:
        """Bytes of the rows."""
        return len(self) * sum(feature.num_bytes for feature in self._features.values())

    @functools.cached_property
    def _numbers(self):
        """The number of the pair of each row: rows are in random order."""
        numbers = np.arange(self.rows.start, self.rows.stop)
        return permuted(numbers, self.size, self.options.seed)

    @functools.cached_property
    def _ends(self):
        return list(itertools.accumulate(pairs.shape[0] for pairs in self.pairs))

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

    def read(self, i: int) -> Row:
        """Returns the row of a pair with its masks."""
        length, room = self.options.max_length, num_predictions(self.options)
        number = int(self._numbers[i])
        part = bisect.bisect_right(self._ends, number)
        place = number - (self._ends[part - 1] if part else 0)
        *texts, is_random = self.pairs[part].read(place, place + 1).view(PAIR)[0].tolist()
        (part_a, start_a, size_a), (part_b, start_b, size_b) = texts[:3], texts[3:]
        ids = [
            *self.ids[part_a].read(start_a, start_a + size_a).tolist(),
            *self.ids[part_b].read(start_b, start_b + size_b).tolist(),
        ]
        share = round((len(ids) + 3) * self.options.masked_lm_prob)
        # One seed per pair: the masks do not depend on the order.
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
    texts = train and _texts_to_learn(train, options, progress)
    tokenizer = bert_vocabulary.tokenizer_from_options(options, texts, progress, runner)
    continues = None
    if options.whole_word_mask:
        continues = [tokenizer.is_continuation(i) for i in range(tokenizer.vocab_size)]
    splits, described = {}, {}
    for name, split in raw.splits.items():
        tokens, num_empty = _tokenize(name, split, tokenizer, progress, runner)
        # Masks of an evaluation need not differ between epochs.
        repeats = options.dupe_factor if name == "train" else 1
        pairs, num_tokens, num_truncated = _draw(name, tokens, repeats, options, runner)
        size = sum(each.shape[0] for each in pairs)
        ids = tuple(part.ids for part in tokens.parts)
        splits[name] = RawPairs(
            range(size), size, ids, pairs, StoredTokens.of(tokenizer), continues, options
        )
        num_texts = num_empty + sum(part.starts.shape[0] - 1 for part in tokens.parts)
        described[name] = WordPieceSplit(
            num_texts=num_texts,
            num_tokens=num_tokens + 3 * size,
            num_truncated=num_truncated,
            left_out={"lines without tokens": num_empty} if num_empty else {},
        )
        progress(
            f"{name}: {tokens.num_documents} documents, each {repeats} times: "
            f"{described[name].describe(size, options.max_length)}"
        )
    raw = dataclasses.replace(raw, splits=splits)
    return bert_vocabulary.with_vocabulary(raw, raw.kind, tokenizer, options, described)


def _texts_to_learn(split, options, progress):
    """Returns the parts of a split to learn a vocabulary from: all, or some of a large text."""
    parts = list(cut_split(split.pieces, split.indices))
    total = sum(piece.num_bytes for part in parts for piece in part.pieces)
    every = -(-total // _LEARN_BYTES)
    if every > 1 and not options.vocabulary:
        progress(
            f"vocabulary: of {total / 2**30:.1f} GiB, each {every}. of {len(parts)} parts is used"
        )
    return map(Sentences, parts[::every])


def _tokenize(name, split, tokenizer, progress, runner):
    """Returns the `Tokens` of a split, and the number of lines without tokens."""
    tokenize_part = functools.partial(_tokenize_part, tokenizer, runner.folder)
    parts, num_empty, num_tokens, num_read = [], 0, 0, 0
    items = list(cut_split(split.pieces, split.indices))
    for item, (part, empty) in zip(items, runner.apply(tokenize_part, items)):
        num_empty += empty
        num_tokens += part.ids.shape[0]
        num_read += len(item.indices)
        if part.num_documents:
            parts.append(part)
        progress(f"{name}: {num_read}/{len(split)} documents, {num_tokens} tokens")
    tokens = Tokens(parts)
    if tokens.num_documents < 2:
        raise DataError(
            f"split '{name}' has {counted(tokens.num_documents, 'document')} with tokens, and "
            "needs 2 at least: the second text of a pair may be of another document. Put empty "
            "lines between documents"
        )
    return tokens, num_empty


def _tokenize_part(tokenizer, folder: str, part: Part) -> tuple[TokenPart, int]:
    """Returns the tokens of documents, and the number of lines without tokens."""
    starts, documents, num_empty = array("q", [0]), array("q", [0]), 0

    def blocks():
        nonlocal num_empty
        some: list[int] = []
        for document in part:
            for ids in tokenizer.encode_ids(document):
                if ids:
                    starts.append(starts[-1] + len(ids))
                    some += ids
                num_empty += not ids
            if len(starts) - 1 > documents[-1]:
                documents.append(len(starts) - 1)
            if len(some) >= _WRITE_AT_ONCE:
                yield np.array(some, tokenizer.dtype)
                some = []
        yield np.array(some, tokenizer.dtype)

    ids = SharedArray.write(folder, blocks())
    counted = (SharedArray.write(folder, [np.frombuffer(a, np.int64)]) for a in (starts, documents))
    return TokenPart(ids, *counted), num_empty


def _draw(name, tokens, repeats, options, runner):
    """Returns the pairs of each part of the documents, and their tokens and truncated pairs."""
    parts, documents = tuple(tokens.parts), map(range, tokens.firsts, tokens.firsts[1:])
    draw_part = functools.partial(_draw_part, runner.folder, name, parts, repeats, options)
    pairs, num_tokens, num_truncated = zip(*runner.apply(draw_part, documents))
    return pairs, sum(num_tokens), sum(num_truncated)


def _draw_part(folder, name, parts, repeats, options, documents):
    """Returns the pairs of some documents, and their numbers of tokens and of truncated pairs."""
    drawn = draw_pairs(Tokens(parts), documents, repeats, options, name)
    num_tokens = num_truncated = 0

    def blocks():
        nonlocal num_tokens, num_truncated
        while some := list(itertools.islice(drawn, _WRITE_AT_ONCE)):
            num_tokens += sum(pair[2] + pair[5] for pair, _ in some)
            num_truncated += sum(is_truncated for _, is_truncated in some)
            yield np.array([pair for pair, _ in some], PAIR)

    return SharedArray.write(folder, blocks()), num_tokens, num_truncated
