"""Exact match, F1 and thresholds of SQuAD. tests/test_squad_against_google.py has real data."""

import pytest

from models.text import squad_metrics
from models.text.squad_metrics import best_threshold, normalize, scores_v1, scores_v2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Café,\n an APPLE!", "café apple"),
        ("another theory", "another theory"),
        ("a.m.", "am"),
        ("«a»", "« »"),  # only ASCII punctuation is removed
        ("... the", ""),
    ],
)
def test_answers_are_normalized_before_they_are_compared(text, expected):
    assert normalize(text) == expected


def test_f1_counts_repeated_words():
    # 2 of 3 predicted and 2 of 4 correct words are common.
    assert squad_metrics.f1("x x y", "x x x z") == pytest.approx(2 * (2 / 3) * (2 / 4) / (7 / 6))


def test_v1_takes_the_best_of_the_correct_answers():
    answers = {"1": ["in Paris", "Paris"], "2": ["the year 1643"]}
    scores = scores_v1(answers, {"1": "paris.", "2": "1643"})
    assert scores == {"exact_match": 50.0, "f1": pytest.approx(100 * (1 + 2 / 3) / 2)}


def test_v1_scores_a_missing_prediction_0():
    assert scores_v1({"1": ["Paris"], "2": ["1643"]}, {"2": "1643"})["f1"] == 50.0


def test_v1_gives_no_f1_without_words():
    assert scores_v1({"1": ["the"]}, {"1": "a"}) == {"exact_match": 100.0, "f1": 0.0}


def test_v2_scores_no_answer():
    answers = {"1": ["Paris"], "2": [], "3": [], "4": ["..."]}
    scores = scores_v2(answers, {"1": "", "2": "", "3": "Paris", "4": ""})
    assert scores["HasAns_exact"] == scores["NoAns_f1"] == 50.0  # "..." has no words, like ""
    assert scores["exact"] == scores["f1"] == 50.0


def test_v2_skips_missing_predictions():
    scores = scores_v2({"1": ["Paris"], "2": []}, {"1": "Paris"})
    assert scores == dict.fromkeys(("exact", "f1", "HasAns_exact", "HasAns_f1"), 100.0)


def test_threshold_is_that_of_the_best_score():
    answers = {"1": ["Paris"], "2": [], "3": ["king"]}
    predictions = {"1": "Paris", "2": "Rome", "3": "queen"}
    odds = {"1": -2.0, "2": 1.0, "3": -5.0}
    # "" for all: 1 of 3. With the answers whose odds are at most -2: 2 of 3, with all: 1 of 3.
    scores = {"1": 1, "2": 0, "3": 0}
    assert best_threshold(answers, predictions, scores, odds) == (100 * 2 / 3, -2.0)


def test_threshold_is_0_if_no_answer_is_best():
    assert best_threshold({"1": []}, {"1": "x"}, {"1": 0}, {"1": -7.0}) == (100.0, 0.0)
