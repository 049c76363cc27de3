"""Questions in the JSON of SQuAD."""

import json

import pytest

from input_fns import DataError, squad_json
from tests import squad_files

ANSWER = {"text": "Paris", "answer_start": 0}


def parse(text):
    return squad_json.parse(text, "dev.json")


def test_questions_know_their_context():
    questions = parse(squad_files.paris_questions("v2.0"))
    assert [one.id for one in questions] == ["capital", "year", "king", "queen", "café"]
    assert [one.paragraph for one in questions] == [0, 0, 0, 0, 1]
    assert questions[0].answers == (("Paris", 0), ("Paris is", 0))
    assert questions[3].is_impossible
    assert questions[4].context == squad_files.CAFE


def test_writing_and_reading_keeps_questions():
    questions = parse(squad_files.paris_questions("v2.0"))
    assert parse(squad_json.to_json(questions, "v2.0").decode()) == questions


def test_version_1_has_no_is_impossible():
    written = json.loads(squad_json.to_json(parse(squad_files.paris_questions()), "1.1"))
    assert "is_impossible" not in written["data"][0]["paragraphs"][0]["qas"][0]


def of(**fields):
    return squad_files.content(("Paris.", [{"id": "a", "question": "What?", **fields}]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "dev.json: it is not JSON: Expecting property name"),
        ("[]", "dev.json: the whole is a list, and must be an object"),
        ("{}", "dev.json: data is missing"),
        ('{"data": [{"paragraphs": 3}]}', r"data\[0\].paragraphs is 3, and must be a list"),
        (squad_files.content(), "dev.json has no question"),
        (of(id=7), r"data\[0\].paragraphs\[0\].qas\[0\].id is 7, and must be a line of text"),
        (of(id="\x1b[2J"), r'id is "\\u001b\[2J", and must be a line of text'),
        (of(question=None), "question must be text"),
        (of(question="\ud800"), "question has a lone surrogate, which no UTF-8 text has"),
        (of(answers={}), "answers is an object, and must be a list"),
        (of(answers=[{"text": "x"}]), r"answers\[0\].answer_start is missing"),
        (of(answers=[{**ANSWER, "answer_start": -1}]), "answer_start is -1, and must be"),
        (of(answers=[{**ANSWER, "answer_start": 0.5}]), "answer_start is 0.5, and must be"),
        (of(answers=[{**ANSWER, "text": 5}]), r"answers\[0\].text must be text"),
        (of(is_impossible="yes"), "is_impossible must be true or false"),
        (of(answers=[ANSWER], is_impossible=True), "question a has an answer and is_impossible"),
        (squad_files.content(("x", [squad_files.question("a")] * 2)), "1 id.* twice.* is 'a'"),
        ("[" * 100_000, "it is nested too deep"),
        ('{"data": ' + "9" * 5000 + "}", "the number 9{20}... is too large"),
    ],
)
def test_invalid_json_is_refused_in_one_line(text, message):
    with pytest.raises(DataError, match=message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
