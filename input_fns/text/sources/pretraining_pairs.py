"""Draws pairs of texts and masks of tokens in the order of google-research/bert."""

from __future__ import annotations

import dataclasses
import random
from array import array

import numpy as np

from input_fns.convert.options import Options
from input_fns.text.sources.token_rows import StoredTokens

# Draws of a document that must differ from the current one, as in google-research/bert.
_DRAWS = 10


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
    tokens: StoredTokens,
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
                masked[i] = tokens.mask_id
            elif rng.random() >= 0.5:
                masked[i] = rng.randint(0, tokens.vocab_size - 1)
        chosen += word
    return sorted(chosen), masked
