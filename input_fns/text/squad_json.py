"""Questions in the JSON of SQuAD 1.1 and 2.0."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable

from common import names
from input_fns import DataError
from input_fns.core.dataset_parts import LeftOut
from input_fns.core.json_fields import (
    MAX_INT,
    Fields,
    boolean,
    integer,
    items,
    line,
    loads,
    utf8_text,
)

INVALID = "questions or contexts that are invalid"
_NO_PLACE = -1  # answer_start of an answer whose place is unknown


@dataclasses.dataclass(frozen=True)
class Question:
    """A question about a context.

    Attributes:
      id: unique in its file.
      text: the question.
      article: title and number of the article that the context is a part of.
      paragraph: number of the context in its file.
      context: the text that answers it.
      answers: `(text, start)` of each correct answer; start is in code points of the context, -1 if
        the file has none.
      is_impossible: whether the context has no answer (SQuAD 2.0).
    """

    id: str
    text: str
    article: tuple[int, str]
    paragraph: int
    context: str
    answers: tuple[tuple[str, int], ...]
    is_impossible: bool


def parse(
    text: str, path: str, left_out: LeftOut | None = None, note: Callable[[str], None] | None = None
) -> list[Question]:
    """Returns the questions of a file, in order.

    Args:
      text: content of the file.
      path: for errors.
      left_out: counts questions that are invalid; None: they are errors.
      note: prints a line if ids are missing or repeated and are made from the places of the
        questions, such as "0-2-1"; None: that is an error.

    Raises:
      DataError: there is no valid question, or one is invalid, or the file is not JSON.
    """
    problems: list[DataError] = []
    try:
        found = list(_questions(loads(text), problems))
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    if problems and (left_out is None or not found):
        raise DataError(f"{path}: {problems[0]}") from problems[0]
    for problem in problems:
        left_out.add(INVALID, f"{path}: {problem}")
    if not found:
        raise DataError(f"{path} has no question")
    return _with_ids(found, path, note)


def _with_ids(found, path, note):
    """Returns the questions of `(place, question)` with unique ids."""
    given = [question.id for _, question in found if question.id]
    repeated, num_missing = names.repeated(given), len(found) - len(given)
    if not repeated and not num_missing:
        return [question for _, question in found]
    problem = f"{names.counted(num_missing, 'question')} without an id" if num_missing else ""
    if repeated:
        twice = f"{names.counted(len(repeated), 'id')} twice; the first is {repeated[0]!a}"
        problem = f"{problem} and {twice}" if problem else twice
    if note is None:
        raise DataError(f"{path} has {problem}")
    taken, questions = set(given), []
    seen: set[str] = set()
    for place, question in found:
        if not question.id or question.id in seen:
            new = "-".join(map(str, place))
            while new in taken:
                new = f"{new}'"
            taken.add(new)
            question = dataclasses.replace(question, id=new)
        seen.add(question.id)
        questions.append(question)
    note(f"{path} has {problem}: ids are made from the places of these questions, such as 0-2-1")
    return questions


def to_json(questions: Iterable[Question], version: str) -> bytes:
    """Returns questions in the JSON of SQuAD, in order, as the official scripts read them."""
    data, last = [], None
    for question in questions:
        if not last or question.article != last.article:
            data.append({"title": question.article[1], "paragraphs": []})
        paragraphs = data[-1]["paragraphs"]
        if not last or question.paragraph != last.paragraph:
            paragraphs.append({"context": question.context, "qas": []})
        answers = [{"text": text, "answer_start": start} for text, start in question.answers]
        fields = {"id": question.id, "question": question.text, "answers": answers}
        if version != "1.1":
            fields["is_impossible"] = question.is_impossible
        paragraphs[-1]["qas"].append(fields)
        last = question
    return json.dumps({"version": version, "data": data}).encode()


def _questions(content, problems):
    """Yields `(place, question)`; adds a `DataError` for what is invalid to `problems`."""
    paragraphs: dict[tuple[int, ...], int] = {}
    articles = {"data": content} if isinstance(content, list) else content
    for place, title, paragraph in _paragraphs(articles, problems):
        try:
            context = paragraph.required("context", utf8_text)
            entries = paragraph.items("qas", _as_is)
        except DataError as error:
            problems.append(error)
            continue
        number = paragraphs.setdefault(place, len(paragraphs))
        for i, (value, where) in enumerate(entries):
            try:
                yield (
                    (*place, i),
                    _question(Fields(value, where), (place[0], title), number, context),
                )
            except DataError as error:
                problems.append(error)


def _paragraphs(content, problems):
    """Yields `(place, title, fields)` of each paragraph."""
    for number, (value, where) in enumerate(Fields(content, "").items("data", _as_is)):
        try:
            article = Fields(value, where)
            title = article.optional("title", utf8_text) or ""
            entries = article.items("paragraphs", _as_is)
        except DataError as error:
            problems.append(error)
            continue
        for i, (paragraph, place) in enumerate(entries):
            try:
                yield (number, i), title, Fields(paragraph, place)
            except DataError as error:
                problems.append(error)


def _as_is(value, where):
    return value, where


def _question(fields, article, paragraph, context):
    question = Question(
        fields.optional("id", _id) or "",
        fields.required("question", utf8_text),
        article,
        paragraph,
        context,
        fields.optional("answers", _answers) or (),
        fields.optional("is_impossible", boolean) or False,
    )
    if question.is_impossible and question.answers:
        raise DataError(f"the question {question.id} has an answer and is_impossible")
    return question


def _id(value, where):
    """Returns an id; annotation tools number questions."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return line(value, where)


def _answers(value, where):
    if isinstance(value, dict):  # one answer, or the lists of Hugging Face's datasets
        texts, starts = value.get("text"), value.get("answer_start")
        value = [value] if value else []
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            value = [{"text": t, "answer_start": s} for t, s in zip(texts, starts)]
    return items(value, where, _answer)


def _answer(value, where):
    fields = Fields(value, where)
    start = fields.optional("answer_start", _start)
    return fields.required("text", utf8_text), _NO_PLACE if start is None else start


def _start(value, where):
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    return max(_NO_PLACE, integer(value, where, -MAX_INT))
