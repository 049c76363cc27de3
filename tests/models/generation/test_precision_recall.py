"""Improved precision and recall, against a loop over all pairs."""

import numpy as np
import pytest

from models.generation import precision_recall


def expected(real, generated, k):
    def covers(center_set, x):
        for i, center in enumerate(center_set):
            others = sorted(np.linalg.norm(center - o) for j, o in enumerate(center_set) if j != i)
            if np.linalg.norm(x - center) <= others[k - 1]:
                return True
        return False

    precision = np.mean([covers(real, x) for x in generated])
    return precision, np.mean([covers(generated, x) for x in real])


@pytest.mark.parametrize("k", [1, 3])
def test_it_is_that_of_the_definition(k, monkeypatch):
    monkeypatch.setattr(precision_recall, "_ROWS", 7)
    random = np.random.default_rng(1)
    real, generated = random.normal(size=[29, 3]), random.normal(0.7, 0.8, size=[23, 3])
    found = precision_recall.precision_and_recall(real, generated, k)
    assert found == pytest.approx(expected(real, generated, k))
    assert 0 < min(found) <= max(found) < 1


def test_samples_of_one_mode_have_precision_without_recall():
    random = np.random.default_rng(1)
    modes = np.repeat([0.0, 100.0], 50)[:, np.newaxis]
    real = random.normal(size=[100, 2]) + modes
    generated = random.normal(scale=0.3, size=[100, 2])
    precision, recall = precision_recall.precision_and_recall(real, generated, 3)
    assert precision > 0.9
    assert recall <= 0.5
