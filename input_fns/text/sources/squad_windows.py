"""Rows of a question and a window of its context.

A row is [CLS] question [SEP] window of the context [SEP]. Windows overlap: they start every
`doc_stride` tokens. The label is the first and the last token of the answer, or 0, [CLS], if the
window does not hold it whole.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from input_fns.convert.options import Options
from input_fns.convert.shared_array import SharedArray
from input_fns.convert.source import Broken, RawSplit, Row
from input_fns.dataset_info import Feature
from input_fns.text.sources.token_rows import StoredTokens, window_starts

NUM_SPECIAL = 3  # [CLS] and two [SEP]


class Tokens(NamedTuple):
    """Tokens of a text: their ids, and the code points where they start and end, int32 `[n]`."""

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class Windows(NamedTuple):
    """The windows of a context for one question.

    Attributes:
      capacity: tokens of the context that fit in a row beside the question.
      stride: tokens from the start of a window to that of the next.
      length: tokens of the context.
    """

    capacity: int
    stride: int
    length: int

    @property
    def starts(self) -> range:
        """The first token of each window; the last window ends with the context."""
        starts = window_starts(self.length, self.capacity, self.stride)
        return starts if self.length else range(0)

    def tokens(self, number: int) -> range:
        """The tokens of the context in a window."""
        first = self.starts[number]
        return range(first, min(first + self.capacity, self.length))

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the context in all windows."""
        if not self.length:
            return 0
        return (len(self.starts) - 1) * self.capacity + self.length - self.starts[-1]

    def hold(self, first: int, last: int) -> bool:
        """Returns whether a window has the tokens from `first` to `last`."""
        start = self.starts[min(first // self.stride, len(self.starts) - 1)]
        return last < start + self.capacity

    def has_most_context(self, number: int) -> np.ndarray:
        """Returns whether each token of a window has more context there than in others, bool.

        The context of a token in a window is the smaller of the numbers of tokens before and
        after it, plus a hundredth of the length of the window, as in google-research/bert; the
        first of equal windows counts.
        """
        if self.length <= self.capacity:
            return np.ones(self.length, bool)
        reach = -(-self.capacity // self.stride)
        neighbors = np.array(self.starts[max(0, number - reach) : number + reach + 1])[:, None]
        lengths = np.minimum(self.capacity, self.length - neighbors)
        tokens = np.array(self.tokens(number))
        context = np.minimum(tokens - neighbors, neighbors + lengths - 1 - tokens)
        score = np.where(context < 0, -np.inf, context + 0.01 * lengths)
        return neighbors[np.argmax(score, axis=0), 0] == tokens[0]


def find_windows(question: np.ndarray, context: Tokens, options: Options) -> Windows:
    """Returns the windows of a context beside the ids of a question."""
    capacity = options.max_length - len(question) - NUM_SPECIAL
    return Windows(capacity, min(capacity, options.doc_stride), len(context.ids))


@dataclasses.dataclass(frozen=True)
class RawWindows(RawSplit):
    """A split of windows; questions that have none are `Broken`.

    Attributes:
      rows: int64 `[size, 8]`: number of the question in the data set (side files in order), begin
        and end of its ids and of its context, first and last token of the answer in the context, or
        -1, and number of the window; -1 for a question that is left out.
      questions: ids of all questions, truncated.
      contexts: tokens of all contexts, int32 `[n, 3]`: see `Tokens`.
      problems: `{number: (file and id, reason)}` of questions that are left out.
      options: `max_length` and `doc_stride`.
      tokens: of the vocabulary.
    """

    KEYS = ("rows",)

    rows: np.ndarray
    questions: SharedArray
    contexts: SharedArray
    problems: dict[int, tuple[str, str]]
    options: Options
    tokens: StoredTokens

    @property
    def num_bytes(self) -> int:
        """Bytes of the rows."""
        return self.num_windows * sum(feature.num_bytes for feature in self._features.values())

    @property
    def num_windows(self) -> int:
        """Number of rows to store."""
        return int((self.rows[:, -1] >= 0).sum())

    def read(self, i: int) -> Row | Broken:
        """Returns a row."""
        number, *places, window = self.rows[i].tolist()
        if window < 0:
            return Broken(*self.problems[number])
        question = self.questions.read(*places[:2])
        context = Tokens(*self.contexts.read(*places[2:4]).T)
        values = self._values(question, context, places[4:], window)
        values["question_index"] = number
        stored = {
            name: np.asarray(values[name], feature.dtype).tobytes()
            for name, feature in self._features.items()
        }
        return Row(stored, self._features)

    @functools.cached_property
    def _features(self):
        length = (self.options.max_length,)
        return {
            "input_ids": Feature("raw", self.tokens.dtype, length),
            "input_mask": Feature("raw", "uint8", length),
            "segment_ids": Feature("raw", "uint8", length),
            "question_index": Feature("raw", "int32", ()),
            "token_starts": Feature("raw", "int32", length),
            "token_ends": Feature("raw", "int32", length),
            "is_max_context": Feature("raw", "uint8", length),
            "start_positions": Feature("raw", "int32", ()),
            "end_positions": Feature("raw", "int32", ()),
        }

    def _values(self, question, context, answer, number):
        tokens, windows = self.tokens, find_windows(question, context, self.options)
        window = windows.tokens(number)
        of_context = slice(window.start, window.stop)
        offset = len(question) + 2
        end = offset + len(window)
        length = self.options.max_length
        names = ("input_ids", "token_starts", "token_ends", "is_max_context")
        values = {name: np.zeros(length, np.int32) for name in names}
        values["input_ids"][:offset] = [tokens.cls_id, *question, tokens.sep_id]
        values["input_ids"][offset:end] = context.ids[of_context]
        values["input_ids"][end] = tokens.sep_id
        values["input_ids"][end + 1 :] = tokens.pad_id
        values["token_starts"][offset:end] = context.starts[of_context]
        values["token_ends"][offset:end] = context.ends[of_context]
        values["is_max_context"][offset:end] = windows.has_most_context(number)
        positions = np.arange(length)
        start_position = end_position = 0
        if answer[0] >= window.start and answer[1] < window.stop:
            start_position, end_position = (place - window.start + offset for place in answer)
        return {
            **values,
            "input_mask": positions <= end,
            "segment_ids": (positions >= offset) & (positions <= end),
            "start_positions": start_position,
            "end_positions": end_position,
        }
