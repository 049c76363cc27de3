"""Questions in the JSON of SQuAD 1.1 and 2.0."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable

from common import names
from input_fns import DataError
from input_fns.json_fields import Fields, items, loads, utf8_text


@dataclasses.dataclass(frozen=True)
class Question:
    """A question about a context.

    Attributes:
      id: unique in its file.
      text: the question.
      article: title and number of the article that the context is a part of.
      paragraph: number of the context in its file.
      context: the text that answers it.
      answers: `(text, start)` of each correct answer; start is in code points of the context.
      is_impossible: whether the context has no answer (SQuAD 2.0).
    """

    id: str
    text: str
    article: tuple[int, str]
    paragraph: int
    context: str
    answers: tuple[tuple[str, int], ...]
    is_impossible: bool


def parse(text: str, path: str) -> list[Question]:
    """Returns the questions of a file, in order.

    Args:
      text: content of the file.
      path: for errors.

    Raises:
      DataError: there is no question, a field is missing or invalid, or an id is repeated.
    """
    try:
        questions = list(_questions(loads(text)))
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    if not questions:
        raise DataError(f"{path} has no question")
    repeated = names.repeated(question.id for question in questions)
    if repeated:
        raise DataError(f"{path} has {len(repeated)} id(s) twice; the first is {repeated[0]!a}")
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


def _questions(content):
    paragraph_number = 0
    for number, article in enumerate(Fields(content, "").items("data", Fields)):
        title = article.optional("title", utf8_text) or ""
        for paragraph in article.items("paragraphs", Fields):
            context = paragraph.required("context", utf8_text)
            for fields in paragraph.items("qas", Fields):
                question = Question(
                    fields.text("id"),
                    fields.required("question", utf8_text),
                    (number, title),
                    paragraph_number,
                    context,
                    fields.optional("answers", _answers) or (),
                    fields.optional("is_impossible", _boolean) or False,
                )
                if question.is_impossible and question.answers:
                    raise DataError(f"the question {question.id} has an answer and is_impossible")
                yield question
            paragraph_number += 1


def _answers(value, where):
    return items(value, where, _answer)


def _answer(value, where):
    fields = Fields(value, where)
    return fields.required("text", utf8_text), fields.integer("answer_start")


def _boolean(value, where):
    if not isinstance(value, bool):
        raise DataError(f"{where} must be true or false")
    return value
