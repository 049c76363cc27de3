"""Pairs of sentences with masked tokens for the pre-training of BERT (arXiv:1810.04805).

Pairs and masks are distributed as by google-research/bert's create_pretraining_data.py. Unlike
there, memory does not grow with the tokens: they and the places of the pairs are in temporary
files, and a pair is masked when it is written. The memory holds about 8 bytes per sentence,
4 per row and 50 per document.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import tempfile
from array import array
from collections.abc import Collection, Iterator

import numpy as np

from input_fns import DataError
from input_fns.convert.source import Options, RawDataset, Row
from input_fns.dataset_info import Feature
from input_fns.text.sources import token_rows
from input_fns.text.sources.pretraining_text import RawDocuments
from input_fns.text.wordpiece import WordPieceTokenizer
from input_fns.text.wordpiece_kind import WordPieceSplit

_ENCODE_AT_ONCE = 10_000
_PAIRS_AT_ONCE = 100_000
# Draws of a document that must differ from the current one, as in google-research/bert.
_DRAWS = 10
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
class Tokens:
    """Token ids of documents.

    Attributes:
      ids: ids of all sentences, `[tokens]`, in a temporary file.
      starts: start of each sentence in `ids`, and the end of the last, int64 `[sentences + 1]`.
      documents: first sentence of each document, and the end, int64 `[documents + 1]`.
    """

    ids: np.ndarray
    starts: np.ndarray
    documents: np.ndarray

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.documents) - 1


@dataclasses.dataclass(frozen=True)
class RawPairs:
    """A `RawSplit` of masked pairs in random order.

    Attributes:
      tokens: the documents.
      pairs: `_PAIR` `[size]`, in a temporary file.
      order: order of the pairs.
      tokenizer: the tokenizer.
      options: see `encode`.
    """

    tokens: Tokens
    pairs: np.ndarray
    order: np.ndarray
    tokenizer: WordPieceTokenizer
    options: Options
    labels: None = None
    groups: None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of all features."""
        size = np.dtype(self.tokenizer.dtype).itemsize
        room = num_predictions(self.options)
        return len(self) * (self.options.max_length * (size + 2) + room * (size + 3) + 1)

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Row]:
        tokenizer, length = self.tokenizer, self.options.max_length
        room = num_predictions(self.options)
        continues = None
        if self.options.whole_word_mask:
            continues = [piece.startswith("##") for piece in tokenizer.pieces]
        features = {
            **token_rows.row_features(tokenizer, length),
            "masked_lm_positions": Feature("raw", "uint16", (room,)),
            "masked_lm_ids": Feature("raw", tokenizer.dtype, (room,)),
            "masked_lm_weights": Feature("raw", "uint8", (room,)),
            "next_sentence_labels": Feature("raw", "uint8", ()),
        }
        for number in self.order.tolist():
            start_a, start_b, size_a, size_b, is_random = self.pairs[number].tolist()
            ids = [
                *self.tokens.ids[start_a : start_a + size_a].tolist(),
                *self.tokens.ids[start_b : start_b + size_b].tolist(),
            ]
            share = round((len(ids) + 3) * self.options.masked_lm_prob)
            # One seed per pair: the masks do not depend on the order.
            rng = random.Random((self.options.seed << 40) + number)
            words = words_of(ids, continues)
            chosen, masked = mask(ids, words, min(room, max(1, share)), tokenizer, rng)
            values = token_rows.row_values((masked[:size_a], masked[size_a:]), tokenizer, length)
            for name, numbers in {
                # After [CLS], and after the [SEP] of the first text.
                "masked_lm_positions": [i + 1 + (i >= size_a) for i in chosen],
                "masked_lm_ids": [ids[i] for i in chosen],
                "masked_lm_weights": [1] * len(chosen),
            }.items():
                padded = np.zeros(room, np.dtype(features[name].dtype).newbyteorder("<"))
                padded[: len(numbers)] = numbers
                values[name] = padded.tobytes()
            values["next_sentence_labels"] = bytes([is_random])
            yield Row(values, features)


def num_predictions(options: Options) -> int:
    """Returns the size of the masked features."""
    return options.max_predictions_per_seq or math.ceil(options.max_length * options.masked_lm_prob)


def encode(
    raw: RawDataset,
    options: Options,
    progress=lambda line: None,
    held_out: Collection[str] = (),
) -> RawDataset:
    """Returns the data set with rows of masked pairs.

    Args:
      raw: splits of `RawDocuments`.
      options: see `token_rows.tokenizer_from_options`; `max_length`, `max_predictions_per_seq`,
        `masked_lm_prob`, `whole_word_mask`, `dupe_factor`, `short_seq_prob`, `seed`.
      progress: function that prints a line.
      held_out: unused.

    Raises:
      DataError: the vocabulary is invalid, or a split has fewer than two documents.
    """
    del held_out
    if options.masked_lm_prob == 0:
        raise DataError("--masked_lm_prob=0 masks no token: it must be above 0")
    if num_predictions(options) > options.max_length:
        raise DataError(
            f"--max_predictions_per_seq={options.max_predictions_per_seq} is more than "
            f"--max_length={options.max_length}"
        )
    train = raw.splits.get("train")
    tokenizer = token_rows.tokenizer_from_options(options, train and train.sentences, progress)
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
        splits[name] = RawPairs(tokens, pairs, order, tokenizer, options)
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
    return token_rows.with_vocabulary(raw, raw.kind, tokenizer, options, described)


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


def draw_pairs(tokens: Tokens, repeats: int, options: Options, rng: random.Random):
    """Yields pairs as `(first, second, first_length, second_length, is_random), is_truncated`.

    Random numbers are drawn in the order of google-research/bert.

    Args:
      tokens: the documents.
      repeats: how often each document is cut into pairs.
      options: `max_length` and `short_seq_prob` are used.
      rng: source of random numbers.
    """
    # 4 bytes for each, and the same order as that of a list.
    order = array("I", range(tokens.num_documents))
    rng.shuffle(order)
    for _ in range(repeats):
        for place in range(len(order)):
            yield from _pairs_of_document(tokens, order, place, options, rng)


def _pairs_of_document(tokens, order, place, options, rng):
    limit = options.max_length - 3
    # Most pairs fill a row. Some are shorter, as those of fine-tuning may be.
    target = limit
    if rng.random() < options.short_seq_prob:
        target = rng.randint(2, limit)
    begin, end = tokens.documents[order[place] : order[place] + 2].tolist()
    starts = tokens.starts[begin : end + 1].tolist()
    count = end - begin
    sentence = chunk = 0
    while sentence < count:
        if sentence == count - 1 or starts[sentence + 1] - starts[chunk] >= target:
            in_chunk = sentence + 1 - chunk
            middle = chunk + (rng.randint(1, in_chunk - 1) if in_chunk > 1 else 1)
            first = (starts[chunk], starts[middle])
            second = (starts[middle], starts[sentence + 1])
            is_random = in_chunk == 1 or rng.random() < 0.5
            if is_random:
                second = _random_text(tokens, order, place, target - (first[1] - first[0]), rng)
                sentence = middle - 1  # the other sentences of the chunk are used again
            yield _truncated(first, second, limit, is_random, rng)
            chunk = sentence + 1
        sentence += 1


def _random_text(tokens, order, place, target, rng):
    """Returns a range of at least `target` tokens of another document, or of its end."""
    for _ in range(_DRAWS):
        other = rng.randint(0, len(order) - 1)
        if other != place:
            break
    begin, end = tokens.documents[order[other] : order[other] + 2].tolist()
    sentence = begin + rng.randint(0, end - begin - 1)
    start = int(tokens.starts[sentence])
    ends = tokens.starts[sentence + 1 : end + 1]
    last = min(int(np.searchsorted(ends, start + target)), len(ends) - 1)
    return start, int(ends[last])


def _truncated(first, second, limit, is_random, rng):
    """Cuts tokens off the longer text, at random at its start or its end, until both fit."""
    (start_a, end_a), (start_b, end_b) = first, second
    is_truncated = end_a - start_a + end_b - start_b > limit
    while end_a - start_a + end_b - start_b > limit:
        at_start = rng.random() < 0.5
        if end_a - start_a > end_b - start_b:
            start_a, end_a = start_a + at_start, end_a - (not at_start)
        else:
            start_b, end_b = start_b + at_start, end_b - (not at_start)
    return (start_a, start_b, end_a - start_a, end_b - start_b, is_random), is_truncated


def words_of(ids: list[int], continues: list[bool] | None) -> list[list[int]]:
    """Returns the tokens that are masked together, as indices of `ids`.

    Args:
      ids: tokens of both texts.
      continues: whether each id continues a word; None to mask single tokens.
    """
    if continues is None:
        return [[i] for i in range(len(ids))]
    words: list[list[int]] = []
    for i, token in enumerate(ids):
        # A truncated text may start inside a word; as in google-research/bert, its rest belongs to
        # the last word before it.
        if words and continues[token]:
            words[-1].append(i)
        else:
            words.append([i])
    return words


def mask(
    ids: list[int],
    words: list[list[int]],
    num_to_predict: int,
    tokenizer: WordPieceTokenizer,
    rng: random.Random,
) -> tuple[list[int], list[int]]:
    """Chooses tokens to predict; 80 % become [MASK], 10 % a random token, 10 % stay.

    Random numbers are drawn in the order of google-research/bert.

    Returns:
      The sorted indices of the chosen tokens, and the ids with masks.
    """
    words = list(words)
    rng.shuffle(words)
    masked, chosen = list(ids), []
    for word in words:
        if len(chosen) >= num_to_predict:
            break
        if len(chosen) + len(word) > num_to_predict:
            continue
        for i in word:
            if rng.random() < 0.8:
                masked[i] = tokenizer.mask_id
            elif rng.random() >= 0.5:
                masked[i] = rng.randint(0, tokenizer.vocab_size - 1)
        chosen += word
    return sorted(chosen), masked
