"""Answers from logits: n best, no answer, and the files."""

import json
import types

import numpy as np
import pytest

from models.model import FileMetric, ModelError
from models.text import squad_answers

CONTEXT = "Paris is the capital"
PLACES = [(0, 5), (6, 8), (9, 12), (13, 20)]
LENGTH = 7  # [CLS] question and 4 words, [SEP]
FIRST = 2
PARAMS = squad_answers.default_params()


def window(start=(), end=(), places=PLACES, has_context=(1, 1, 1, 1), null=0.0):
    """Features and predictions of a window; `start` and `end` are `{word: logit}`."""
    features = {name: np.zeros([1, LENGTH], np.int32) for name in ("token_starts", "token_ends")}
    features["is_max_context"] = np.zeros([1, LENGTH], np.int32)
    for i, (place, is_max) in enumerate(zip(places, has_context)):
        features["token_starts"][0, FIRST + i], features["token_ends"][0, FIRST + i] = place
        features["is_max_context"][0, FIRST + i] = is_max
    logits = np.full([2, 1, LENGTH], -9, np.float32)
    logits[:, 0, 0] = null / 2
    for row, values in zip(logits, (start, end)):
        for i, value in dict(values).items():
            row[0, FIRST + i] = value
    return features, {"start_logits": logits[0], "end_logits": logits[1]}


def choose(*windows, has_impossible=False, **params):
    params = {**PARAMS, **params}
    spans = [squad_answers.find_spans(*one, params)[0] for one in windows]
    return squad_answers.choose(CONTEXT, spans, params, has_impossible)


def texts(answer):
    return [entry["text"] for entry in answer.nbest]


def test_an_answer_is_the_text_between_its_tokens():
    answer = choose(window({2: 5}, {3: 5}))
    assert answer.text == "the capital"
    assert answer.nbest[0]["start_logit"] == answer.nbest[0]["end_logit"] == 5.0


def test_probabilities_are_those_of_the_n_best():
    nbest = choose(window({0: 2, 3: 1}, {0: 2, 3: 1}), n_best_size=2).nbest
    assert [entry["text"] for entry in nbest] == ["Paris", "Paris is the capital"]
    weights = np.exp([4.0, 3.0])
    assert [entry["probability"] for entry in nbest] == pytest.approx(weights / weights.sum())


def test_an_answer_does_not_end_before_it_starts():
    assert choose(window({3: 9}, {0: 9, 3: 1})).text == "capital"


def test_long_answers_are_left_out():
    assert choose(window({0: 9}, {3: 9, 1: 1}), max_answer_length=3).text == "Paris is"


def test_an_answer_starts_where_the_window_has_the_most_context():
    assert choose(window({0: 9, 1: 1}, {1: 9}, has_context=(0, 1, 1, 1))).text == "is"


def test_an_answer_may_end_where_another_window_has_more_context():
    assert choose(window({0: 9}, {1: 9}, has_context=(1, 0, 0, 0))).text == "Paris is"


def test_tokens_of_the_question_are_no_answer():
    features, predictions = window({3: 1}, {3: 1})
    predictions["start_logits"][0, 1] = predictions["end_logits"][0, 1] = 9
    assert choose((features, predictions)).text == "capital"


def test_windows_compete():
    right = window({0: 3}, {0: 3}, places=PLACES[2:])
    answer = choose(window({0: 2}, {0: 2}), right)
    assert answer.text == "the"
    assert texts(answer)[:2] == ["the", "Paris"]


def test_equal_texts_are_listed_once():
    answer = choose(window({0: 2}, {0: 2}), window({0: 3}, {0: 3}))
    assert texts(answer).count("Paris") == 1


def test_the_first_of_equal_scores_is_chosen():
    assert choose(window({0: 1, 3: 1}, {0: 1, 3: 1})).text == "Paris"


@pytest.mark.parametrize(("threshold", "text"), [(1.9, ""), (2.0, "Paris")])
def test_no_answer_needs_odds_above_the_threshold(threshold, text):
    one = window({0: 1}, {0: 1}, null=4.0)
    answer = choose(one, has_impossible=True, null_threshold=threshold)
    assert (answer.text, answer.null_odds) == (text, 2.0)


def test_null_odds_are_those_of_the_least_likely_window():
    windows = [window({0: 1}, {0: 1}, null=6.0), window(null=3.0)]
    assert choose(*windows, has_impossible=True).null_odds == 3.0 - 2.0


def test_no_answer_is_among_the_n_best_of_v2_only():
    one = window({0: 4, 3: 1}, {0: 4, 3: 1}, null=4.0)
    assert "" not in texts(choose(one))
    assert texts(choose(one, has_impossible=True))[:3] == ["Paris", "Paris is the capital", ""]
    assert texts(choose(one, has_impossible=True, n_best_size=1)) == ["Paris", ""]


@pytest.mark.parametrize("has_impossible", [False, True])
def test_a_question_without_a_window_gets_no_answer(has_impossible):
    answer = choose(has_impossible=has_impossible)
    assert (answer.text, answer.null_odds) == ("", squad_answers.NO_ANSWER_ODDS)
    assert texts(answer) == [""]


@pytest.mark.parametrize("has_impossible", [False, True])
def test_a_window_without_a_possible_answer_gives_none(has_impossible):
    answer = choose(window(has_context=(0, 0, 0, 0)), has_impossible=has_impossible)
    assert (answer.text, answer.null_odds) == ("", squad_answers.NO_ANSWER_ODDS)


@pytest.mark.parametrize("name", ["n_best_size", "max_answer_length"])
def test_sizes_are_at_least_1(name):
    with pytest.raises(ModelError, match=f"{name}=0 must be at least 1"):
        squad_answers.check_params({**PARAMS, name: 0})


class FakePipeline:
    """Two splits: 3 questions before the evaluated ones."""

    def __init__(self, has_impossible):
        self.properties = {"has_impossible": has_impossible}

    def questions_around(self, index):
        assert index == 4
        answers = {"a": [("Paris", 0)], "b": [("the", 9)], "c": []}
        return 3, [
            types.SimpleNamespace(id=name, context=CONTEXT, answers=answers[name])
            for name in answers
        ]


def updated(has_impossible):
    metric = squad_answers.SquadAnswers(PARAMS, FakePipeline(has_impossible))
    for index, word, null in ((4, 2, -9.0), (4, 3, -9.0), (5, 0, 9.0)):
        features, predictions = window({word: 5 - word}, {word: 5 - word}, null=null)
        metric.update({**features, "question_index": np.array([index])}, None, predictions)
    return metric


def test_every_question_of_the_split_counts():
    # "a" has no window, "b" is right, "c" has no answer in 1.1 terms.
    assert updated(False).result()["exact_match"] == pytest.approx(100 / 3)
    scores = updated(True).result()
    assert (scores["HasAns_exact"], scores["NoAns_exact"]) == (50.0, 0.0)


def test_metrics_have_the_names_of_the_official_script():
    assert updated(False).names == ("exact_match", "f1")
    assert set(updated(True).names) == set(updated(True).result())


def test_files_have_the_official_form():
    metric = updated(True)
    assert isinstance(metric, FileMetric)
    files = {name: json.loads(content) for name, content in metric.files().items()}
    assert set(files) == {"predictions.json", "nbest_predictions.json", "null_odds.json"}
    assert files["predictions.json"] == {"a": "", "b": "the", "c": "Paris"}
    assert list(files["null_odds.json"]) == ["a", "b", "c"]
    first = files["nbest_predictions.json"]["b"][0]
    assert list(first) == ["text", "probability", "start_logit", "end_logit"]
    assert "null_odds.json" not in updated(False).files()
