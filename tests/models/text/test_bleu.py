"""BLEU of a whole split, by sacreBLEU."""

import numpy as np
import pytest

from models.text.bleu import Bleu

SENTENCES = ["a cat sat on the mat", "the dog\nsees a bird"]


@pytest.fixture
def bleu():
    return Bleu(lambda ids: [SENTENCES[number] for number in ids[:, 0]])


def test_identical_translations_have_100_percent(bleu, capsys):
    for number in (0, 0):
        ids = np.array([[number]])
        bleu.update({}, ids, {"target": ids})
    assert bleu.result() == {"bleu": pytest.approx(100)}
    assert "tok:13a" in capsys.readouterr().out  # sacreBLEU's signature


def test_a_wrong_translation_counts(bleu):
    bleu.update({}, np.array([[0], [0]]), {"target": np.array([[0], [1]])})
    assert 0 < bleu.result()["bleu"] < 60


def test_its_name_can_be_the_best_metric(bleu):
    assert bleu.names == ("bleu",)
