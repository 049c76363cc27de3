"""Splits contexts into windows of tokens, and maps the answers of questions to them.

A row is [CLS] question [SEP] window of the context [SEP]. Windows overlap: they start every
`doc_stride` tokens. The label is the first and the last token of the answer, or 0, [CLS], if the
window does not hold it whole.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from common.names import printable
from input_fns import DataError, squad_json, wordpiece
from input_fns.convert.source import Broken, Options, RawDataset, Row
from input_fns.convert.squad import RawQuestions
from input_fns.convert.writer import content_name
from input_fns.dataset_info import Feature, WordPiece, WordPieceSplit

_NUM_SPECIAL = 3  # [CLS] and two [SEP]
_ENCODE_AT_ONCE = 1000
_NUM_NAMED = 10
_NO_TOKENS = "the context has no tokens"
_NO_ANSWER = "no answer is given"
_NOT_IN_CONTEXT = "the answer is not in the context where answer_start says"
_IN_NO_WINDOW = "no window holds the whole answer"


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
        more = max(0, -(-(self.length - self.capacity) // self.stride))
        return range(0, (more + 1) * self.stride, self.stride) if self.length else range(0)

    def has_most_context(self, number: int) -> np.ndarray:
        """Returns whether each token of a window has more context there than in others, bool.

        The context of a token in a window is the smaller of the numbers of tokens before and
        after it; the first of equal windows counts. google-research/bert weighs the length of the
        window, too, which matters for the last one only.
        """
        if self.length <= self.capacity:
            return np.ones(self.length, bool)
        reach = -(-self.capacity // self.stride)
        neighbors = np.array(self.starts[max(0, number - reach) : number + reach + 1])[:, None]
        lengths = np.minimum(self.capacity, self.length - neighbors)
        first = self.starts[number]
        tokens = np.arange(first, min(first + self.capacity, self.length))
        context = np.minimum(tokens - neighbors, neighbors + lengths - 1 - tokens)
        score = np.where(context < 0, -np.inf, context + 0.01 * lengths)
        return neighbors[np.argmax(score, axis=0), 0] == first


@dataclasses.dataclass(frozen=True)
class RawWindows:
    """A `RawSplit` of windows; questions that have none are `Broken`.

    Attributes:
      split: the questions.
      numbers: `[size of split]`, the number of each question in the data set: side files in order.
      questions: tokens of each question, truncated.
      contexts: `{paragraph: tokens}`.
      answers: `(first, last)` token of the context, or None, for each question.
      problems: `{index: reason}` of the questions that are left out.
      options: `max_length` and `doc_stride`.
      tokenizer: the vocabulary.
    """

    split: RawQuestions
    numbers: np.ndarray
    questions: list[np.ndarray]
    contexts: dict[int, Tokens]
    answers: list[tuple[int, int] | None]
    problems: dict[int, str]
    options: Options
    tokenizer: wordpiece.WordPieceTokenizer
    labels: None = None
    groups: None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of the rows."""
        return self.num_windows * sum(feature.num_bytes for feature in self._features.values())

    @functools.cached_property
    def num_windows(self) -> int:
        """Number of rows to store."""
        stored = (i for i in range(len(self.split)) if i not in self.problems)
        return sum(len(self.windows(i).starts) for i in stored)

    def __len__(self) -> int:
        return self.num_windows + len(self.problems)

    def __iter__(self) -> Iterator[Row | Broken]:
        for i in range(len(self.split)):
            if i in self.problems:
                name = f"{os.path.basename(self.split.path)}: {printable(self.question(i).id)}"
                yield Broken(name, self.problems[i])
                continue
            for number in range(len(self.windows(i).starts)):
                values = self._row(i, number)
                yield Row(
                    {
                        name: np.asarray(values[name], feature.dtype).tobytes()
                        for name, feature in self._features.items()
                    },
                    self._features,
                )

    def question(self, i: int) -> squad_json.Question:
        """Returns a question of the split."""
        return self.split.questions[self.split.indices[i]]

    def context(self, i: int) -> Tokens:
        """Returns the tokens of the context of a question."""
        return self.contexts[self.question(i).paragraph]

    def windows(self, i: int) -> Windows:
        """Returns the windows of a question."""
        capacity = self.options.max_length - len(self.questions[i]) - _NUM_SPECIAL
        stride = min(capacity, self.options.doc_stride)
        return Windows(capacity, stride, len(self.context(i).ids))

    @property
    def _features(self):
        length = (self.options.max_length,)
        return {
            "input_ids": Feature("raw", self.tokenizer.dtype, length),
            "input_mask": Feature("raw", "uint8", length),
            "segment_ids": Feature("raw", "uint8", length),
            "question_index": Feature("raw", "int32", ()),
            "token_starts": Feature("raw", "int32", length),
            "token_ends": Feature("raw", "int32", length),
            "is_max_context": Feature("raw", "uint8", length),
            "start_positions": Feature("raw", "int32", ()),
            "end_positions": Feature("raw", "int32", ()),
        }

    def _row(self, i, number):
        question, context, windows = self.questions[i], self.context(i), self.windows(i)
        first = windows.starts[number]
        of_context = slice(first, min(first + windows.capacity, windows.length))
        offset = len(question) + 2
        end = offset + of_context.stop - first
        length = self.options.max_length
        names = ("input_ids", "token_starts", "token_ends", "is_max_context")
        values = {name: np.zeros(length, np.int32) for name in names}
        values["input_ids"][:offset] = [self.tokenizer.cls_id, *question, self.tokenizer.sep_id]
        values["input_ids"][offset:end] = context.ids[of_context]
        values["input_ids"][end] = self.tokenizer.sep_id
        values["input_ids"][end + 1 :] = self.tokenizer.pad_id
        values["token_starts"][offset:end] = context.starts[of_context]
        values["token_ends"][offset:end] = context.ends[of_context]
        values["is_max_context"][offset:end] = windows.has_most_context(number)
        positions = np.arange(length)
        start_position = end_position = 0
        if self.answers[i] and first <= self.answers[i][0] and self.answers[i][1] < of_context.stop:
            start_position, end_position = (place - first + offset for place in self.answers[i])
        return {
            **values,
            "input_mask": positions <= end,
            "segment_ids": (positions >= offset) & (positions <= end),
            "question_index": self.numbers[i],
            "start_positions": start_position,
            "end_positions": end_position,
        }


def encode(
    raw: RawDataset,
    options: Options,
    progress=lambda line: None,
    held_out: Collection[str] = (),
) -> RawDataset:
    """Returns the data set with windows of tokens.

    Questions of "train" without an answer to learn are left out. Other splits keep every question
    whose context has tokens. The side file of a split has every question.

    Args:
      raw: splits of `RawQuestions`.
      options: `vocabulary`, `lower_case`, `max_length`, `doc_stride` and `max_query_length`.
      progress: function that prints a line.
      held_out: unused; a held-out split is evaluated like others.

    Raises:
      DataError: the vocabulary or an option is invalid.
    """
    del held_out
    if options.max_query_length + _NUM_SPECIAL >= options.max_length:
        raise DataError(
            f"--max_query_length={options.max_query_length} leaves no room for a context in "
            f"--max_length={options.max_length}: it must be at most "
            f"{options.max_length - _NUM_SPECIAL - 1}"
        )
    tokenizer = wordpiece.load(options.vocabulary, options.lower_case)
    vocabulary = content_name("vocab.txt", tokenizer.vocab)
    is_v2 = any(q.is_impossible for split in raw.splits.values() for q in split.questions)
    splits, described, files, num_questions = {}, {}, {vocabulary: tokenizer.vocab}, 0
    for name, split in raw.splits.items():
        in_order = np.sort(split.indices)
        content = squad_json.to_json(
            (split.questions[i] for i in in_order), "v2.0" if is_v2 else "1.1"
        )
        side_file = content_name(f"questions-{name}.json", content)
        files[side_file] = content
        numbers = num_questions + np.searchsorted(in_order, split.indices)
        num_questions += len(numbers)
        splits[name], described[name] = _encode_split(
            name, split, numbers, tokenizer, options, side_file, progress
        )
        num_windows = splits[name].num_windows
        progress(f"{name}: {described[name].describe(num_windows, options.max_length)}")
    return dataclasses.replace(
        raw,
        splits=splits,
        files=files,
        labels=("start_positions", "end_positions"),
        properties={
            "has_impossible": is_v2,
            "doc_stride": options.doc_stride,
            "max_query_length": options.max_query_length,
        },
        wordpiece=WordPiece(
            task="squad",
            vocabulary=vocabulary,
            vocab_size=tokenizer.vocab_size,
            max_length=options.max_length,
            lower_case=options.lower_case,
            has_pairs=True,
            splits=described,
        ),
    )


def _encode_split(name, split, numbers, tokenizer, options, side_file, progress):
    questions = [split.questions[i] for i in split.indices]
    texts = {question.paragraph: question.context for question in questions}
    contexts = dict(zip(texts, _encode_texts(list(texts.values()), tokenizer)))
    of_questions = _encode_texts([question.text for question in questions], tokenizer)
    truncated = [tokens.ids[: options.max_query_length] for tokens in of_questions]
    windows = RawWindows(
        split, numbers, truncated, contexts, [], {}, options=options, tokenizer=tokenizer
    )
    unlabeled = {}
    for i, question in enumerate(questions):
        answer, problem = _find_answer(question, contexts[question.paragraph], windows.windows(i))
        windows.answers.append(answer)
        if not len(windows.context(i).ids):
            windows.problems[i] = _NO_TOKENS
        elif problem and name == "train":
            windows.problems[i] = problem
        elif problem:
            unlabeled[i] = problem
    if not windows.num_windows:
        reasons = dict(Counter(windows.problems.values()))
        raise DataError(f"{split.path}: no question of '{name}' can be used: {reasons}")
    _report(name, windows, unlabeled, progress)
    stored = [i for i in range(len(questions)) if i not in windows.problems]
    num_tokens = sum(
        sum(
            len(truncated[i]) + _NUM_SPECIAL + min(of_one.capacity, of_one.length - start)
            for start in of_one.starts
        )
        for i in stored
        for of_one in [windows.windows(i)]
    )
    return windows, WordPieceSplit(
        num_texts=len(questions),
        num_tokens=num_tokens,
        num_truncated=sum(len(tokens.ids) > options.max_query_length for tokens in of_questions),
        left_out=dict(Counter(windows.problems.values())),
        side_file=side_file,
    )


def _encode_texts(texts, tokenizer):
    found = []
    for start in range(0, len(texts), _ENCODE_AT_ONCE):
        for encoding in tokenizer.encode(texts[start : start + _ENCODE_AT_ONCE]):
            found.append(Tokens(*(np.array(values, np.int32) for values in encoding)))
    return found


def _find_answer(question, tokens, windows):
    """Returns the first and the last token of an answer, or None and what is wrong."""
    if question.is_impossible:
        return None, None
    problem = _NO_ANSWER
    for text, start in question.answers:
        # Spaces may differ, as in google-research/bert.
        words = r"\s+".join(map(re.escape, text.split()))
        found = re.compile(rf"\s*({words})").match(question.context, start)
        if not words or not found:
            problem = problem if problem == _IN_NO_WINDOW else _NOT_IN_CONTEXT
            continue
        # The tokens that overlap the answer.
        first = int(np.searchsorted(tokens.ends, found.start(1), side="right"))
        last = int(np.searchsorted(tokens.starts, found.end(1), side="left")) - 1
        if first > last:
            problem = _NOT_IN_CONTEXT
            continue
        if any(start <= first and last < start + windows.capacity for start in windows.starts):
            return (first, last), None
        problem = _IN_NO_WINDOW
    return None, problem


def _report(name, windows, unlabeled, progress):
    """Lists the questions whose windows are labelled as if they had no answer."""
    for reason in dict.fromkeys(unlabeled.values()):
        ids = [printable(windows.question(i).id) for i, why in unlabeled.items() if why == reason]
        more = ", ..." if ids[_NUM_NAMED:] else ""
        progress(
            f"{name}: {len(ids)} question(s) of {windows.split.path} are asked, but their windows "
            f"have the labels of no answer, because {reason}: {', '.join(ids[:_NUM_NAMED])}{more}"
        )
