"""Entities as conlleval finds them, and their scores."""

import types

import numpy as np
import pytest

from models.text import bert_token_classifier
from models.text.bert_token_classifier import EntityF1, entities

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-PER I-PER O", {(1, 2, "PER")}),
        ("B-PER B-PER", {(0, 0, "PER"), (1, 1, "PER")}),
        ("B-PER I-LOC", {(0, 0, "PER"), (1, 1, "LOC")}),
        ("I-PER I-PER O I-LOC", {(0, 1, "PER"), (3, 3, "LOC")}),
        ("O O", set()),
        ("", set()),
    ],
)
def test_entities_of_a_sentence(tags, expected):
    assert entities(tags.split()) == expected


def test_scores_count_whole_entities_and_only_words():
    metric = EntityF1(TAGS)
    labels = np.array([[-1, 1, 2, 0, 3, -1], [-1, 3, 0, -1, -1, -1]])
    predicted = np.array([[4, 1, 2, 0, 0, 4], [3, 1, 3, 3, 0, 0]])
    metric.update({}, {"tag_ids": labels}, {"tag_ids": predicted})
    # Three entities, three predicted, of which one is correct.
    assert metric.result() == pytest.approx(
        {"entity_precision": 1 / 3, "entity_recall": 1 / 3, "entity_f1": 1 / 3}
    )


@pytest.mark.parametrize(
    ("tags", "count"), [(TAGS, 1), (("I-PER", "O"), 1), (("B-X", "E-X", "I-X"), 0), (("A", "B"), 0)]
)
def test_tags_of_another_form_have_no_entities(tags, count):
    pipeline = types.SimpleNamespace(properties={"tag_names": list(tags)})
    params = {"num_tags": len(tags)}
    assert len(bert_token_classifier.host_metrics(params, pipeline)) == count


def test_no_entities_score_0():
    assert set(EntityF1(TAGS).result().values()) == {0.0}


def test_no_predicted_entity_is_a_collapse():
    labels = np.ones([23, 3], np.int32)
    for predicted, is_collapse in ((0 * labels, True), (labels, False)):
        metric = EntityF1(TAGS)
        metric.update({}, {"tag_ids": labels}, {"tag_ids": predicted})
        assert bool(metric.find_collapse(None)) == is_collapse
