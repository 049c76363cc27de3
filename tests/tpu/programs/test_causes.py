"""Why cores may compute something else than one CPU, found in the graph of a step."""

import pytest
import tensorflow as tf
from tensorflow.python.framework import tensor_shape

from tests.tpu.check.regression import make_estimator, make_model_fn, minimize, rows, squares
from tpu.check import graph_builder
from tpu.check.graph_builder import CheckedMode
from tpu.connect import topology
from tpu.programs import causes

tf1 = tf.compat.v1
SLICE = topology.find("1x2")


def causes_of(loss=squares, train=minimize):
    """Returns the names of the causes, without their places."""
    estimator = make_estimator(make_model_fn(loss, train))
    step = graph_builder.build_once(CheckedMode(estimator, rows, "train", SLICE))
    found = causes.find(step.program, batch_size=8, num_cores=2, differs=False)
    return [cause.name.partition(" at ")[0] for cause in found]


def over_batch(features, labels):
    """A dense layer of features that the sum of each column over the batch divides."""
    return squares(features / tf.reduce_sum(features, axis=0), labels)


def negative_power(features, labels):
    return squares(features * tf.reduce_mean(features, axis=0) ** -0.5, labels)


def normalized(features, labels):
    mean, variance = tf.nn.moments(features, axes=[0])
    return squares((features - mean) * tf.math.rsqrt(variance + 1e-3), labels)


def over_features(features, labels):
    return squares(features / tf.reduce_sum(features, axis=1, keepdims=True), labels)


def positive_power(features, labels):
    return squares(tf.abs(features) ** 1.5, labels)


def in_function(loss):
    """The same loss, computed in the body of a tf.function without variables."""
    body = tf.function(lambda features: features / tf.reduce_sum(features, axis=0))
    return lambda features, labels: loss(body(features), labels)


@pytest.mark.parametrize(
    ("loss", "names"),
    [
        (over_batch, ["divisor"]),
        (in_function(squares), ["divisor"]),
        (negative_power, ["divisor"]),
        (normalized, ["batch norm"]),
        (over_features, []),
        (positive_power, []),
    ],
)
def test_statistics_of_each_column_are_found(loss, names):
    assert causes_of(loss) == names


@pytest.mark.parametrize("is_version_2", [False, True])
def test_a_sum_of_a_batch_of_unknown_size(is_version_2, monkeypatch):
    def over_kept(features, labels):
        kept = tf.boolean_mask(features, features[:, 0] > 0)
        return squares(features / tf.reduce_sum(kept, axis=0), labels)

    monkeypatch.setattr(tensor_shape, "_TENSORSHAPE_V2_OVERRIDE", is_version_2)
    assert causes_of(over_kept) == ["divisor"]


@pytest.mark.parametrize(
    "decay",
    [
        lambda step: tf1.train.exponential_decay(0.01, step, 100, 0.9, staircase=True),
        lambda step: tf1.train.polynomial_decay(0.01, step, 100, power=-0.5, cycle=True),
        lambda step: tf1.train.inverse_time_decay(0.01, step, 100, 0.9),
    ],
    ids=["exponential", "polynomial", "inverse_time"],
)
def test_a_decay_of_the_learning_rate_is_not_a_cause(decay):
    def train(loss):
        step = tf1.train.get_global_step()
        optimizer = tf1.train.GradientDescentOptimizer(decay(step))
        return tf1.tpu.CrossShardOptimizer(optimizer).minimize(loss, step)

    assert causes_of(train=train) == []
