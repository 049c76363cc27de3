"""Draws pairs of texts and masks of tokens in the order of google-research/bert."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import random
from collections.abc import Iterator, Sequence

import numpy as np

from input_fns.convert.options import Options
from input_fns.convert.shared_array import SharedArray
from input_fns.text.sources.token_rows import StoredTokens

# Draws of a document that must differ from the current one, as in google-research/bert.
_DRAWS = 10


# A pair: the part and the place in its tokens of two texts, and their lengths.
PAIR = np.dtype(
    [
        ("first_part", np.uint16),
        ("first", np.int64),
        ("first_length", np.uint16),
        ("second_part", np.uint16),
        ("second", np.int64),
        ("second_length", np.uint16),
        ("is_random", np.uint8),
    ]
)


@dataclasses.dataclass(frozen=True)
class TokenPart:
    """Token ids of some documents of a split.

    Attributes:
      ids: ids of all sentences, `[tokens]`.
      starts: start of each sentence in `ids`, and the end of the last, int64 `[sentences + 1]`.
      documents: first sentence of each document, and the end, int64 `[documents + 1]`.
    """

    ids: SharedArray
    starts: SharedArray
    documents: SharedArray

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return self.documents.shape[0] - 1


class Tokens:
    """Token ids of the documents of a split, in files.

    Attributes:
      parts: the parts, in order.
      firsts: number of the first document of each part, and of all documents.
    """

    def __init__(self, parts: Sequence[TokenPart]):
        """Takes the parts."""
        self.parts = parts
        self.firsts = [0, *itertools.accumulate(part.num_documents for part in parts)]

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return self.firsts[-1]

    def sentences(self, document: int) -> tuple[int, np.ndarray]:
        """Returns the part of a document, and where its sentences start and the last one ends."""
        number = bisect.bisect_right(self.firsts, document) - 1
        part, place = self.parts[number], document - self.firsts[number]
        begin, end = part.documents.read(place, place + 2).tolist()
        return number, part.starts.read(begin, end + 1)


def draw_pairs(
    tokens: Tokens, documents: range, repeats: int, options: Options, split: str
) -> Iterator[tuple[tuple, bool]]:
    """Yields pairs of documents as a `PAIR` and whether it is truncated.

    Each document and repetition has its own random numbers, so that pairs do not depend on which
    documents are drawn together.

    Args:
      tokens: all documents of the split.
      documents: numbers of the documents to draw pairs of.
      repeats: how often each document is cut into pairs.
      options: `max_length`, `short_seq_prob` and `seed` are used.
      split: name of the split.
    """
    for document in documents:
        for repeat in range(repeats):
            rng = random.Random(f"{options.seed} {split} {document} {repeat}")
            yield from pairs_of_document(tokens, document, options, rng)


def pairs_of_document(
    tokens: Tokens, document: int, options: Options, rng: random.Random
) -> Iterator[tuple[tuple, bool]]:
    """Yields the pairs of a document, see `draw_pairs`.

    Random numbers are drawn in the order of google-research/bert's
    `create_instances_from_document`.
    """
    limit = options.max_length - 3
    # Most pairs fill a row. Some are shorter, as those of fine-tuning may be.
    target = limit
    if rng.random() < options.short_seq_prob:
        target = rng.randint(2, limit)
    part, starts = tokens.sentences(document)
    starts = starts.tolist()
    count = len(starts) - 1
    sentence = chunk = 0
    while sentence < count:
        if sentence == count - 1 or starts[sentence + 1] - starts[chunk] >= target:
            in_chunk = sentence + 1 - chunk
            middle = chunk + (rng.randint(1, in_chunk - 1) if in_chunk > 1 else 1)
            first = (part, starts[chunk], starts[middle])
            second = (part, starts[middle], starts[sentence + 1])
            is_random = in_chunk == 1 or rng.random() < 0.5
            if is_random:
                second = _random_text(tokens, document, target - (first[2] - first[1]), rng)
                sentence = middle - 1  # the other sentences of the chunk are used again
            yield _truncated(first, second, limit, is_random, rng)
            chunk = sentence + 1
        sentence += 1


def _random_text(tokens, document, target, rng):
    """Returns the place of at least `target` tokens of another document, or of its end."""
    for _ in range(_DRAWS):
        other = rng.randint(0, tokens.num_documents - 1)
        if other != document:
            break
    part, starts = tokens.sentences(other)
    sentence = rng.randint(0, len(starts) - 2)
    start, ends = int(starts[sentence]), starts[sentence + 1 :]
    last = min(int(np.searchsorted(ends, start + target)), len(ends) - 1)
    return part, start, int(ends[last])


def _truncated(first, second, limit, is_random, rng):
    """Cuts tokens off the longer text, at random at its start or its end, until both fit."""
    (part_a, start_a, end_a), (part_b, start_b, end_b) = first, second
    is_truncated = end_a - start_a + end_b - start_b > limit
    while end_a - start_a + end_b - start_b > limit:
        at_start = rng.random() < 0.5
        if end_a - start_a > end_b - start_b:
            start_a, end_a = start_a + at_start, end_a - (not at_start)
        else:
            start_b, end_b = start_b + at_start, end_b - (not at_start)
    pair = (part_a, start_a, end_a - start_a, part_b, start_b, end_b - start_b, is_random)
    return pair, is_truncated


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
    tokens: StoredTokens,
    rng: random.Random,
) -> tuple[list[int], list[int]]:
    """Chooses tokens to predict; 80 % become [MASK], 10 % a random token, 10 % stay.

    Random numbers are drawn in the order of google-research/bert.

    Returns:
      The sorted indices of the chosen tokens, and the ids with masks.
    """
    words = list(words)
    _shuffle(words, rng)
    masked, chosen = list(ids), []
    for word in words:
        if len(chosen) >= num_to_predict:
            break
        if len(chosen) + len(word) > num_to_predict:
            continue
        for i in word:
            if rng.random() < 0.8:
                masked[i] = tokens.mask_id
            elif rng.random() >= 0.5:
                masked[i] = rng.randint(0, tokens.vocab_size - 1)
        chosen += word
    return sorted(chosen), masked


def _shuffle(values, rng):
    """Shuffles a list as `random.Random.shuffle` does, in half of the time."""
    getrandbits = rng.getrandbits
    end = len(values)
    while end > 1:
        bits = end.bit_length()
        start = max(2, 1 << bits - 1)  # the numbers up to `end` that have as many bits
        for i in range(end - 1, start - 2, -1):
            j = getrandbits(bits)
            while j > i:
                j = getrandbits(bits)
            values[i], values[j] = values[j], values[i]
        end = start - 1
