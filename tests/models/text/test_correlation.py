"""Pearson and Spearman correlation over batches."""

import numpy as np
import pytest

from models.text.correlation import Correlation


def correlation(labels, scores):
    metric = Correlation()
    for part in np.array_split(np.arange(len(labels)), 3):
        metric.update({}, {"score": labels[part]}, {"scores": scores[part]})
    return metric


def correlate(labels, scores):
    return correlation(labels, scores).result()


def test_correlations_are_those_of_the_whole_split():
    random = np.random.default_rng(0)
    labels, scores = random.normal(size=[2, 13]).astype(np.float32)
    ranks = [np.argsort(np.argsort(values)) for values in (labels, scores)]
    found = correlate(labels, scores)
    assert found["pearson"] == pytest.approx(np.corrcoef(labels, scores)[0, 1], rel=1e-5)
    assert found["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1], rel=1e-5)


def test_a_constant_prediction_has_no_correlation():
    assert correlate(np.arange(13.0), np.ones(13)) == {"pearson": 0.0, "spearman": 0.0}


def test_equal_scores_are_a_collapse():
    labels = np.arange(23.0)
    nearly = 3.375 + np.resize([0.03, -0.03], 23)
    assert (
        correlation(labels, nearly)
        .find_collapse(None)
        .startswith(
            "all 23 predictions of 'score' are about 3.376: the model has not learned the numbers"
        )
    )
    assert correlation(labels, nearly + labels / 9).find_collapse(None) == ""
    assert correlation(labels[:13], nearly[:13]).find_collapse(None) == ""  # a small split
    assert correlation(np.ones(23), np.ones(23)).find_collapse(None) == ""
