"""Why cores may compute something else than one CPU, found in the graph of a step."""

import pytest
import tensorflow as tf
from tensorflow.python.framework import tensor_shape
from tensorflow.python.ops import control_flow_util

from tests.tpu.check.regression import (
    NUM_FEATURES,
    make_estimator,
    make_model_fn,
    minimize,
    rows,
    squares,
)
from tpu.check import graph_builder
from tpu.check.graph_builder import CheckedMode
from tpu.connect import topology
from tpu.programs import causes

tf1 = tf.compat.v1
SLICE = topology.find("1x2")


def causes_of(loss=squares, train=minimize, differs=False):
    """Returns the names of the causes, without their places."""
    estimator = make_estimator(make_model_fn(loss, train))
    step = graph_builder.build_once(CheckedMode(estimator, rows, "train", SLICE))
    found = causes.find(step.program, batch_size=8, num_cores=2, differs=differs)
    return [cause.name.partition(" at ")[0] for cause in found]


def over_batch(features, labels):
    """A dense layer of features that the sum of each column over the batch divides."""
    return squares(features / tf.reduce_sum(features, axis=0), labels)


def negative_power(features, labels):
    return squares(features * tf.reduce_mean(features, axis=0) ** -0.5, labels)


def normalized(features, labels):
    mean, variance = tf.nn.moments(features, axes=[0])
    return squares((features - mean) * tf.math.rsqrt(variance + 1e-3), labels)


def over_group(features, labels, groups=((0,), (1,))):
    total = tf1.tpu.cross_replica_sum(tf.reduce_sum(features, axis=0), list(map(list, groups)))
    return squares(features / total, labels)


def over_cores(features, labels):
    return over_group(features, labels, groups=[(0, 1)])


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
        (over_group, ["divisor"]),
        (over_cores, []),
        (over_features, []),
        (positive_power, []),
    ],
)
def test_statistics_of_each_column_are_found(loss, names):
    assert causes_of(loss) == names


def in_array(loss):
    """The same loss of features that were in a TensorArray: examples, or their positions."""

    def of_array(features, labels):
        items = tf.TensorArray(tf.float32, NUM_FEATURES).unstack(tf.transpose(features))
        return loss(tf.transpose(items.stack()), labels)

    return of_array


def mapped(loss):
    return lambda features, labels: loss(tf.map_fn(lambda row: 2 * row, features), labels)


@pytest.mark.parametrize("make", [in_array, mapped])
@pytest.mark.parametrize("is_version_2", [False, True])
def test_values_in_a_tensor_array(make, is_version_2, monkeypatch):
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", is_version_2)
    assert causes_of(make(over_features)) == []
    assert causes_of(make(over_batch)) == ["divisor"]


def test_a_statistic_in_a_tensor_array():
    def over_mean(features, labels):
        means = tf.TensorArray(tf.float32, 1).write(0, tf.reduce_mean(features))
        return squares(features / means.read(0), labels)

    assert causes_of(over_mean) == ["divisor"]


def test_sizes_of_tensor_arrays_are_not_a_cause():
    assert causes_of(mapped(squares), differs=True) == []


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
