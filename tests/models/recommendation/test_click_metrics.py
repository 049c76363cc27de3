"""Metrics of clicks against scikit-learn."""

import numpy as np
import pytest

from models.recommendation.click_metrics import ClickMetrics

metrics = pytest.importorskip("sklearn.metrics")


def result(logits, labels):
    metric = ClickMetrics()
    for part in np.array_split(np.arange(len(logits)), 3):
        metric.update({}, labels[part], {"logits": logits[part]})
    return metric.result()


def test_metrics_equal_those_of_scikit_learn():
    random = np.random.default_rng(0)
    labels = (random.uniform(size=997) < 0.3).astype(np.int32)
    # Rounded: ties. None is 0: bins of scikit-learn include their upper edge, such as 0.5.
    logits = (np.round(random.normal(size=997) + labels, 1) + 0.03).astype(np.float32)
    probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
    found = result(logits, labels)
    np.testing.assert_allclose(found["auc"], metrics.roc_auc_score(labels, logits), rtol=1e-12)
    np.testing.assert_allclose(
        found["log_loss"], metrics.log_loss(labels, probabilities), rtol=1e-12
    )
    np.testing.assert_allclose(
        found["calibration"], probabilities.mean() / labels.mean(), rtol=1e-12
    )
    from sklearn.calibration import calibration_curve

    true, mean = calibration_curve(labels, probabilities, n_bins=10)
    sizes = np.histogram(probabilities, np.linspace(0, 1, 11))[0]
    expected = np.sum(np.abs(true - mean) * sizes[sizes > 0]) / len(labels)
    np.testing.assert_allclose(found["calibration_error"], expected, rtol=1e-9)
    assert found["auc"] != metrics.roc_auc_score(labels, -logits)


def test_one_class_and_nan():
    assert result(np.zeros(5, np.float32), np.zeros(5, int))["auc"] == 0
    assert np.isnan(result(np.full(5, np.nan, np.float32), np.ones(5, int))["log_loss"])
