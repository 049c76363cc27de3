"""Encodes questions and contexts as WordPiece ids, and maps answers to tokens."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections import Counter
from collections.abc import Callable

import numpy as np

from common.names import counted, printable
from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.convert.runners import Runner
from input_fns.convert.shared_array import SharedArray
from input_fns.convert.source import RawDataset, content_name
from input_fns.text import squad_json
from input_fns.text.sources import bert_vocabulary, squad_windows, token_rows
from input_fns.text.sources.squad_windows import NUM_SPECIAL, RawWindows, Tokens
from input_fns.text.wordpiece_kind import WordPieceSplit

_NUM_NAMED = 10
_MANY_WINDOWS = 100  # of a question; articles of Wikipedia have 5 to 100
_NO_TOKENS = "the context has no tokens"
_NO_ANSWER = "no answer is given"
_NOT_IN_CONTEXT = "the answer is not in the context where answer_start says"
_IN_NO_WINDOW = "no window holds the whole answer"


def encode(
    raw: RawDataset, options: Options, progress: Callable[[str], None], runner: Runner
) -> RawDataset:
    """Returns the data set with windows of tokens.

    Questions of "train" without an answer to learn are left out. Other splits keep every question
    whose context has tokens. The side file of a split has every question.

    Args:
      raw: splits of `RawQuestions`.
      options: see `bert_vocabulary.tokenizer_from_options`; `max_length`, `doc_stride` and
        `max_query_length`.
      progress: function that prints a line.
      runner: runs functions on parts of the texts.

    Raises:
      DataError: the vocabulary or an option is invalid.
    """
    if options.max_query_length + NUM_SPECIAL >= options.max_length:
        raise DataError(
            f"--max_query_length={options.max_query_length} leaves no room for a context in "
            f"--max_length={options.max_length}: it must be at most "
            f"{options.max_length - NUM_SPECIAL - 1}"
        )
    train = raw.splits.get("train")
    texts = train and bert_vocabulary.parts(_train_texts(train))
    tokenizer = bert_vocabulary.tokenizer_from_options(options, texts, progress, runner)
    is_v2 = any(q.is_impossible for split in raw.splits.values() for q in split.questions)
    splits, described, files, num_questions = {}, {}, {}, 0
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
            name, split, numbers, tokenizer, options, side_file, progress, runner
        )
        num_windows = splits[name].num_windows
        progress(f"{name}: {described[name].describe(num_windows, options.max_length)}")
        if num_windows > _MANY_WINDOWS * len(split):
            progress(
                f"warning: {name} has {num_windows} rows for {len(split)} questions, because each "
                "has all windows of its context. Split long contexts, ask each question of the "
                "paragraph with its answer, or set a larger --max_length or --doc_stride"
            )
    raw = dataclasses.replace(
        raw,
        splits=splits,
        files=files,
        labels=("start_positions", "end_positions"),
        properties={
            "has_impossible": is_v2,
            "doc_stride": options.doc_stride,
            "max_query_length": options.max_query_length,
        },
    )
    draft = bert_vocabulary.draft("squad", has_pairs=True, left_out={})
    return bert_vocabulary.with_vocabulary(raw, draft, tokenizer, options, described)


def _train_texts(split):
    """Returns the contexts and questions of a split."""
    questions = [split.questions[i] for i in split.indices]
    contexts = {question.paragraph: question.context for question in questions}
    return [*contexts.values(), *(question.text for question in questions)]


def _encode_split(name, split, numbers, tokenizer, options, side_file, progress, runner):
    questions = [split.questions[i] for i in split.indices]
    texts = {question.paragraph: question.context for question in questions}
    contexts, bounds = _encode_contexts(texts, tokenizer, runner)
    encoded = token_rows.encode_all(tokenizer, (one.text for one in questions), runner)
    truncated = [ids[: options.max_query_length] for ids in encoded]
    ends = np.cumsum([0, *map(len, truncated)]).tolist()
    rows, problems, unlabeled, left_out, num_tokens = [], {}, {}, {}, 0
    for i, question in enumerate(questions):
        place = bounds[question.paragraph]
        context = Tokens(*contexts.array[slice(*place)].T)
        windows = squad_windows.find_windows(truncated[i], context, options)
        answer, problem = _find_answer(question, context, windows)
        if not windows.length:
            problems[i] = _NO_TOKENS
        elif problem:
            (problems if name == "train" else unlabeled)[i] = problem
        row = numbers[i], ends[i], ends[i + 1], *place, *(answer or (-1, -1))
        if i in problems:
            where = f"{os.path.basename(split.path)}: {printable(question.id)}"
            left_out[int(numbers[i])] = where, problems[i]
            rows.append((*row, -1))
            continue
        rows += [(*row, number) for number in range(len(windows.starts))]
        num_tokens += (len(truncated[i]) + NUM_SPECIAL) * len(windows.starts) + windows.num_tokens
    reasons = dict(Counter(problems.values()))
    if len(problems) == len(questions):
        shown = "; ".join(f"{count}: {reason}" for reason, count in reasons.items())
        raise DataError(f"{split.path}: no question of '{name}' can be used: {shown}")
    _report(name, split.path, questions, unlabeled, progress)
    num_truncated = sum(len(ids) > options.max_query_length for ids in encoded)
    return (
        RawWindows(
            np.array(rows, np.int64),
            SharedArray.write(runner.folder, [np.concatenate(truncated)]),
            contexts,
            left_out,
            options,
            token_rows.StoredTokens.of(tokenizer),
        ),
        WordPieceSplit(len(questions), num_tokens, num_truncated, reasons, side_file),
    )


def _encode_contexts(texts, tokenizer, runner):
    """Returns the tokens of all texts, int32 `[n, 3]`, and `{key of a text: (begin, end)}`."""
    lengths = []

    def tokens():
        encode = functools.partial(_encode_part, tokenizer)
        for of_part, lengths_of_part in runner.apply(encode, bert_vocabulary.parts(texts.values())):
            lengths.extend(lengths_of_part)
            yield of_part

    contexts = SharedArray.write(runner.folder, tokens())
    ends = np.cumsum([0, *lengths]).tolist()
    return contexts, dict(zip(texts, zip(ends, ends[1:])))


def _encode_part(tokenizer, texts):
    encodings = tokenizer.encode(texts)
    tokens = np.concatenate([np.array(one, np.int32).T for one in encodings])
    return tokens, [len(one.ids) for one in encodings]


def _find_answer(question, tokens, windows):
    """Returns the first and the last token of an answer, or None and what is wrong."""
    if question.is_impossible:
        return None, None
    problem = _NO_ANSWER
    for text, start in question.answers:
        place = _find_place(question.context, text, start)
        if not place:
            problem = problem if problem == _IN_NO_WINDOW else _NOT_IN_CONTEXT
            continue
        # The tokens that overlap the answer.
        first = int(np.searchsorted(tokens.ends, place[0], side="right"))
        last = int(np.searchsorted(tokens.starts, place[1], side="left")) - 1
        if first > last:
            problem = _NOT_IN_CONTEXT
            continue
        if windows.hold(first, last):
            return (first, last), None
        problem = _IN_NO_WINDOW
    return None, problem


def _find_place(context, text, start):
    """Returns where the text of an answer starts and ends in the context, or None."""
    if start < 0 or not text.strip():
        return None
    if context.startswith(text, start) and text == text.strip():  # most are
        return start, start + len(text)
    # Spaces may differ, as in google-research/bert.
    words = r"\s+".join(map(re.escape, text.split()))
    found = re.compile(rf"\s*({words})").match(context, start)
    return found and found.span(1)


def _report(name, path, questions, unlabeled, progress):
    """Lists the questions whose windows are labelled as if they had no answer."""
    for reason in dict.fromkeys(unlabeled.values()):
        ids = [printable(questions[i].id) for i, why in unlabeled.items() if why == reason]
        more = ", ..." if ids[_NUM_NAMED:] else ""
        progress(
            f"{name}: {counted(len(ids), 'question')} of {path} asked with the labels of no answer "
            f"in the loss, because {reason}: {', '.join(ids[:_NUM_NAMED])}{more}"
        )
