"""Metrics of documents equal those of scikit-learn and SciPy, in batches of any size."""

import types

import numpy as np
import pytest
from sklearn import metrics

from input_fns.text import document_pipeline
from models.targets import ranking
from models.text import document_metrics

_RANDOM = np.random.default_rng(0)
DOCUMENTS = np.repeat(np.arange(23), _RANDOM.integers(1, 6, 23))
CLASSES = _RANDOM.integers(0, 3, 23)[DOCUMENTS]
PROBABILITIES = _RANDOM.dirichlet(np.ones(3), len(DOCUMENTS)).astype(np.float32)
SCORES = _RANDOM.normal(size=len(DOCUMENTS)).astype(np.float32)
PIPELINE = types.SimpleNamespace(
    join=lambda predictions, documents: document_pipeline.join(predictions, documents, "mean")
)


def result(kind, labels, predictions, size):
    metric = kind(PIPELINE)
    for start in range(0, len(DOCUMENTS), size):
        some = slice(start, start + size)
        batch = {name: values[some] for name, values in predictions.items()}
        of_batch = (
            {n: v[some] for n, v in labels.items()} if isinstance(labels, dict) else labels[some]
        )
        metric.update({"document_index": DOCUMENTS[some]}, of_batch, batch)
    return metric.result()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_classes(size):
    found = result(document_metrics.Classes, CLASSES, {"probabilities": PROBABILITIES}, size)
    labels, classes = [], []
    for document in range(23):
        is_own = document == DOCUMENTS
        labels.append(CLASSES[is_own][0])
        classes.append(PROBABILITIES[is_own].astype(np.float64).mean(axis=0).argmax())
    assert found["document_accuracy"] == pytest.approx(metrics.accuracy_score(labels, classes))
    f1 = metrics.f1_score(labels, classes, average="macro", zero_division=0)
    assert found["document_f1"] == pytest.approx(f1)
    matthews = metrics.matthews_corrcoef(labels, classes)
    assert found["document_matthews_correlation"] == pytest.approx(matthews)


@pytest.mark.parametrize("size", [5, 1000])
def test_scores(size):
    labels = {"score": np.arange(23.0)[DOCUMENTS]}
    found = result(document_metrics.Scores, labels, {"scores": SCORES}, size)
    means = np.array([SCORES[document == DOCUMENTS].mean() for document in range(23)])
    error = np.abs(means - np.arange(23)).mean()
    assert found["document_mean_absolute_error"] == pytest.approx(error, rel=1e-6)
    assert found["document_spearman"] == pytest.approx(ranking.spearman(np.arange(23.0), means))


def test_other_data_have_no_documents():
    assert document_metrics.host_metrics(object(), document_metrics.Classes) == []
