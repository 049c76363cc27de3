"""Questions in the JSON of SQuAD."""

import json

import pytest

from input_fns import DataError
from input_fns.dataset_info import LeftOut
from input_fns.text import squad_json
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
        ("3", "dev.json: the whole is 3, and must be an object"),
        ("[]", "dev.json has no question"),
        ("{}", "dev.json: data is missing"),
        ('{"data": [{"paragraphs": 3}]}', r"data\[0\].paragraphs is 3, and must be a list"),
        (squad_files.content(), "dev.json has no question"),
        (of(id=7.5), r"data\[0\].paragraphs\[0\].qas\[0\].id is 7.5, and must be a line of text"),
        (of(id="\x1b[2J"), r'id is "\\u001b\[2J", and must be a line of text'),
        (of(question=None), "question must be text"),
        (of(question="\ud800"), "question has a lone surrogate, which no UTF-8 text has"),
        (of(answers="Paris"), 'answers is "Paris", and must be a list'),
        (of(answers=[{**ANSWER, "answer_start": 0.5}]), "answer_start is 0.5, and must be"),
        (of(answers=[{**ANSWER, "text": 5}]), r"answers\[0\].text must be text"),
        (of(is_impossible="yes"), r"is_impossible is \"yes\", and must be true"),
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


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"answers": [ANSWER]}, (("Paris", 0),)),
        ({"answers": ANSWER}, (("Paris", 0),)),
        ({"answers": {"text": ["Paris", "P"], "answer_start": [0, 0]}}, (("Paris", 0), ("P", 0))),
        ({"answers": {"text": [], "answer_start": []}}, ()),
        ({"answers": {}}, ()),
        ({"answers": None}, ()),
        ({"answers": [{"text": "Paris", "answer_start": -1}]}, (("Paris", -1),)),
        ({"answers": [{"text": "Paris", "answer_start": -7}]}, (("Paris", -1),)),
        ({"answers": [{"text": "Paris", "answer_start": None}]}, (("Paris", -1),)),
        ({"answers": [{"text": "Paris"}]}, (("Paris", -1),)),
        ({"answers": [{"text": "Paris", "answer_start": "3"}]}, (("Paris", 3),)),
    ],
)
def test_answers_have_the_forms_of_annotation_tools(fields, answers):
    (question,) = parse(of(**fields))
    assert question.answers == answers
    assert parse(squad_json.to_json([question], "1.1").decode()) == [question]


def test_articles_may_be_a_list_without_a_version():
    articles = json.loads(squad_files.paris_questions())["data"]
    assert parse(json.dumps(articles)) == parse(squad_files.paris_questions())


def test_ids_may_be_numbers():
    assert parse(of(id=7))[0].id == "7"


def test_missing_and_repeated_ids_are_made_from_places():
    questions = [{"question": "a"}, squad_files.question("0-0-0", "b"), squad_files.question("x")]
    questions.append(squad_files.question("x"))
    text = squad_files.content(("Paris.", questions))
    with pytest.raises(DataError, match=r"1 question without an id and 1 id twice"):
        parse(text)
    lines = []
    found = squad_json.parse(text, "train.json", LeftOut(), lines.append)
    assert [question.id for question in found] == ["0-0-0'", "0-0-0", "x", "0-0-3"]
    assert len(lines) == 1
    assert "train.json has 1 question without an id and 1 id twice" in lines[0]


def test_invalid_questions_are_counted_and_others_read():
    good = squad_files.question("good", "What?", ("Paris", 0))
    bad = [
        {**good, "id": "a", "question": None},
        {**good, "id": "b", "answers": [{"text": 5}]},
        {**good, "id": "c", "is_impossible": True},
        "no object",
    ]
    text = json.loads(squad_files.content(("Paris.", [*bad[:2], good, *bad[2:]])))
    text["data"][0]["paragraphs"] += [{"qas": [good]}, {"context": "x"}, 3]
    text["data"].append({"title": "no paragraphs"})
    left_out = LeftOut()
    (question,) = squad_json.parse(json.dumps(text), "train.json", left_out)
    assert question.id == "good"
    assert left_out.counts == {squad_json.INVALID: 8}
    assert left_out.names[squad_json.INVALID][0] == (
        "train.json: data[0].paragraphs[0].qas[0].question must be text"
    )
    with pytest.raises(
        DataError, match=r"train\.json: data\[0\].paragraphs\[0\].qas\[0\].question"
    ):
        squad_json.parse(json.dumps(text), "train.json")
