"""Batches of predictions: their numbers of rows."""

import numpy as np
import pytest

from engine.evaluation import predictions
from models.model import ModelError


def test_outputs_of_different_numbers_of_rows_are_an_error():
    batch = {"price": np.zeros(5), "importance": np.zeros([3, 2])}
    found = predictions.batches(lambda **_: iter([batch]), 5, 5, "model.ckpt-1")
    with pytest.raises(ModelError, match="different numbers of rows: price 5, importance 3"):
        next(found)
