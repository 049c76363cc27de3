"""Predictions of a model, checked when their graph is built."""

import types

import pytest
import tensorflow as tf

from engine import model_fns
from models.model import ModelError


def predictions(function, batch=None):
    model = types.SimpleNamespace(predictions=function)
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [batch, 7])
        return model_fns._predictions(model, {"x": x}, {"y": x[:, 0]}, {})


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda _, outputs, __: outputs["y"], "returned <tf.Tensor .*, not a dict of a tensor"),
        (lambda *_: {}, r"returned \{\}, not a dict"),
        (lambda _, outputs, __: {"y": outputs}, r"'y' is a dict, not a tensor \[batch, \.\.\.\]"),
        (lambda *_: {"mean": tf.zeros([])}, r"'mean' has the shape \(\), not \[batch, \.\.\.\]"),
        (lambda *_: {"importance": tf.zeros([3])}, r"'importance' has the shape \(3,\), not"),
    ],
)
def test_predictions_that_are_not_by_example_are_an_error(function, message):
    with pytest.raises(ModelError, match=f"predictions: {message}"):
        predictions(function)


@pytest.mark.parametrize("batch", [None, 5])  # that of a TPU is static
def test_predictions_by_example_are_accepted(batch):
    found = predictions(lambda _, outputs, __: {**outputs, "z": outputs["y"] + 1}, batch)
    assert [*found] == ["y", "z"]


def test_predictions_of_another_static_batch_are_an_error():
    with pytest.raises(ModelError, match=r"'z' has the shape \(3, 2\), not \[batch, \.\.\.\]"):
        predictions(lambda _, outputs, __: {**outputs, "z": tf.zeros([3, 2])}, batch=5)
