"""Tests of common.messages."""

import pytest

from common import messages

VALID = ["learning_rate", "label_smoothing", "end_learning_rate", "weight_decay"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("learning_rat", "learning_rate"),
        ("lr", "learning_rate"),
        ("ls", "label_smoothing"),
        ("xyz", ""),
    ],
)
def test_the_name_that_is_most_similar(name, found):
    assert messages.similar(name, VALID) == found


def test_initials_of_two_names_are_of_neither():
    assert messages.similar("wd", [*VALID, "window_duration"]) == ""


def test_without_a_similar_name_all_are_shown():
    assert messages.did_you_mean("lr", VALID) == " Did you mean 'learning_rate'?"
    assert messages.did_you_mean("q", ["b", "a"]) == " Valid: a, b."
