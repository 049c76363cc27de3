"""Ranking metrics against NumPy loops: ties, short rows, NaN, batches."""

import math

import numpy as np
import pytest

from models.recommendation.ranking_metrics import RankingMetrics

K = 3


def reference(logits, items):
    """Computes every metric row by row, from its definition."""
    hits, gains, reciprocals, aucs, losses = [], [], [], [], []
    for row, row_items in zip(logits, items):
        positive = row[0]
        negatives = [x for x, item in zip(row[1:], row_items[1:]) if item >= 0]
        rank = 1 + sum(1 for x in negatives if not x < positive)
        hits.append(rank <= K)
        gains.append(1 / math.log2(1 + rank) if rank <= K else 0)
        reciprocals.append(1 / rank)
        if negatives:
            won = sum(1.0 if x < positive else 0.5 if x == positive else 0.0 for x in negatives)
            aucs.append(won / len(negatives))
        losses.append(-math.log(1 / (1 + math.exp(-positive))))
        losses += [-math.log(1 - 1 / (1 + math.exp(-x))) for x in negatives]
    names = (f"hr_at_{K}", f"ndcg_at_{K}", "mrr", "auc", "log_loss")
    return dict(zip(names, map(np.mean, (hits, gains, reciprocals, aucs, losses))))


def compute(logits, items, batch=4):
    metric = RankingMetrics(K)
    for start in range(0, len(logits), batch):
        rows = slice(start, start + batch)
        metric.update({"items": items[rows]}, {}, {"logits": logits[rows]})
    assert list(metric.result()) == list(metric.names)
    return metric.result()


@pytest.fixture
def rows():
    random = np.random.default_rng(0)
    logits = random.integers(-3, 4, [13, 8]).astype(np.float32)  # many ties
    items = random.integers(0, 50, [13, 8])
    items[5, 3:] = items[6, 1:] = -1  # a short row, and one without negatives
    return logits, items


def test_metrics_equal_the_reference(rows):
    found, expected = compute(*rows), reference(*rows)
    assert found == pytest.approx(expected, rel=1e-9)


def test_equal_logits_hit_nothing():
    found = compute(np.zeros([5, 8]), np.ones([5, 8], int))
    assert found[f"hr_at_{K}"] == found[f"ndcg_at_{K}"] == 0
    assert found["auc"] == 0.5
    assert found["mrr"] == 1 / 8
    assert found["log_loss"] == pytest.approx(math.log(2))


@pytest.mark.parametrize("place", [0, 1])
def test_nan_counts_against_the_positive(place):
    logits = np.array([[2.0, 1.0, 0.0]])
    assert compute(logits, np.ones([1, 3], int))["mrr"] == 1
    logits[0, place] = np.nan
    assert compute(logits, np.ones([1, 3], int))["mrr"] < 1


def test_large_logits_are_not_tied():
    found = compute(np.array([[101.0, 100.0, 99.0]], np.float32), np.ones([1, 3], int))
    assert found["mrr"] == 1
    assert found["log_loss"] == pytest.approx(199 / 3)
