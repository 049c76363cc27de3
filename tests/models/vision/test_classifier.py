"""Reports of image classifiers."""

import types

import numpy as np

from models.vision import classifier


def test_classes_without_names_are_reported_by_number():
    pipeline = types.SimpleNamespace(data=types.SimpleNamespace(class_names=(), target=None))
    matrix, _ = classifier.reports({"num_classes": 3}, pipeline)
    evaluation = types.SimpleNamespace(metrics={"confusion_matrix": np.eye(3, dtype=int)})
    assert matrix.text(evaluation).splitlines()[1].startswith("0 ")
