"""Accesses to a variable run in the order in which they were created."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from tests.tpu.emulator import tiny
from tpu.emulator import emulator, variable_order

tf1 = tf.compat.v1


def after(operations, value):
    with tf.control_dependencies(operations):
        return tf.identity(value)


def add(variable, amount):
    """Adds to a variable, slowly."""
    work = tf.ones([300, 300]) * variable.dtype.as_numpy_dtype(1)
    return variable.assign_add(amount + 0 * tf.reduce_sum(work @ work))


def loop(count, body):
    return tf1.while_loop(lambda i, _: i < count, lambda i, x: (i + 1, body(x)), [0, 0.0])[1]


def add_one(variable):
    return after([add(variable, 1.0)], 1.0)


# Name: (function of a variable that starts as 1, its result between two reads).
PROGRAMS = {
    "taken branch": (lambda v: tf1.cond(v > 0, lambda: add_one(v), lambda: v + 5), 1),
    "other branch": (lambda v: tf1.cond(v < 0, lambda: add_one(v), lambda: v + 5), 6),
    "constant predicate": (
        lambda v: tf1.cond(tf.constant(True), lambda: add_one(v), lambda: v + 5),
        1,
    ),
    "nested conditionals": (
        lambda v: tf1.cond(
            v > 0,
            lambda: tf1.cond(v > 1, lambda: add_one(v), lambda: v + 5),
            lambda: add_one(v),
        ),
        6,
    ),
    "loop": (lambda v: loop(3, lambda x: after([add(v, 1.0)], x + v)), 2 + 3 + 4),
    "loop without iterations": (lambda v: loop(0, lambda x: after([add(v, 1.0)], x + v)), 0),
    "loop in a branch": (
        lambda v: tf1.cond(
            v > 0,
            lambda: loop(3, lambda x: after([add(v, 1.0)], x + v)),
            lambda: v + 5,
        ),
        2 + 3 + 4,
    ),
    "branch in a loop": (
        lambda v: loop(3, lambda x: x + tf1.cond(v > 1, lambda: 2 * v, lambda: add_one(v))),
        1 + 4 + 4,
    ),
}
WRITTEN = {"taken branch": 1, "constant predicate": 1, "loop": 3, "loop in a branch": 3}
WRITTEN["branch in a loop"] = 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_order_is_that_of_creation(name):
    build, expected = PROGRAMS[name]
    with tf.Graph().as_default() as graph:
        variable = tf1.get_variable("v", initializer=1.0, use_resource=True)
        created = len(graph.get_operations())
        results = [2 * variable, build(variable), add(variable, 10.0), 2 * variable]
        variable_order.add_edges(graph.get_operations()[created:])
        with tf1.Session() as session:
            session.run(tf1.variables_initializer([variable]))
            first, result, _, last = session.run(results)
    assert (first, result, last) == (2, expected, 2 * (11 + WRITTEN.get(name, 0)))


def test_reference_variable():
    with tf.Graph().as_default() as graph:
        variable = tf1.get_variable("v", initializer=1.0, use_resource=False)
        created = len(graph.get_operations())
        results = []
        for _ in range(3):
            results.append(2 * variable.read_value())
            results.append(after([add(variable, 10.0)], 0.0))
        variable_order.add_edges(graph.get_operations()[created:])
        with tf1.Session() as session:
            session.run(tf1.variables_initializer([variable]))
            assert session.run(results[::2] + results[1::2])[:3] == [2, 22, 42]


def test_loop_that_reads_a_reference_variable():
    with tf.Graph().as_default() as graph:
        variable = tf1.get_variable("v", initializer=1.0, use_resource=False)
        results = [loop(3, lambda x: x + 2 * variable), add(variable, 10.0)]
        operations = graph.get_operations()
        operations.remove(variable.initializer)
        variable_order.add_edges(operations)
        with tf1.Session() as session:
            session.run(tf1.variables_initializer([variable]))
            assert session.run(results) == [6, 11]


def test_reads_between_two_writes_are_not_ordered():
    with tf.Graph().as_default() as graph:
        variable = tf1.get_variable("v", [], use_resource=True)
        created = len(graph.get_operations())
        reads = [variable.read_value().op.inputs[0].op for _ in range(3)]
        write = variable.assign(1.0, read_value=False)
        edges = variable_order.order_accesses(graph.get_operations()[created:])
    assert {(first, later) for first, later in edges} == {(read, write) for read in reads}


def warm_up_model_fn(features, labels, mode, params):
    """The learning rate of BERT: it reads global_step, and nothing orders it with the update."""
    step = tf1.train.get_global_step()
    rate = tf.cast(step, tf.float32)
    weight = tf1.get_variable("weight", initializer=0.0)
    seen = tf1.get_variable("seen", [20], initializer=tf1.zeros_initializer(), trainable=False)
    hidden = tf.reshape(features, [-1, 1])
    for _ in range(30):  # so that the update of the step is ready long before
        hidden = tf.tanh(hidden @ tf.ones([1, 1]))
    gradient = tf1.tpu.cross_replica_sum(tf.reduce_sum(hidden) + weight)
    with tf.control_dependencies([gradient]):
        late = tf.cast(step.read_value(), tf.float32)
    row = tf.one_hot(tf.cast(rate, tf.int32), 20) * (late + 1)
    updates = [weight.assign(weight + 0 * gradient), seen.assign_add(row), step.assign(step + 1)]
    loss = tf.reduce_mean(labels) + weight
    return tf1.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=tf.group(updates))


def test_learning_rate_reads_global_step_before_its_update(tmp_path):
    with emulator.emulate("v2-8"):
        config = tiny.config(tmp_path, {"iterations_per_loop": 20}, master="grpc://tpu")
        estimator = tiny.estimator(config, warm_up_model_fn)
        estimator.train(tiny.numbers, steps=20)
    np.testing.assert_array_equal(estimator.get_variable_value("seen"), np.arange(1, 21))


def branch_model_fn(features, labels, mode, params):
    """Reads a variable in a branch before and after a slow update."""
    counter = tf1.get_variable("counter", initializer=1.0, trainable=False)
    seen = tf1.get_variable("seen", initializer=0.0, trainable=False)

    def branch():
        before = counter.read_value()
        add(counter, 10.0)
        return before + 100 * counter.read_value()

    found = tf.cond(labels[0, 0] > -1, branch, lambda: 0.0)
    step = tf1.train.get_global_step().assign_add(1)
    loss = tf1.tpu.cross_replica_sum(tf.reduce_mean(labels))
    return tf1.estimator.tpu.TPUEstimatorSpec(
        mode, loss=loss, train_op=tf.group(seen.assign(found), step)
    )


def test_order_in_a_branch_of_version_2(tmp_path, monkeypatch):
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", True)
    with emulator.emulate("1x2"):
        estimator = tiny.estimator(tiny.config(tmp_path, master="grpc://tpu"), branch_model_fn)
        estimator.train(tiny.numbers, steps=1)
    assert estimator.get_variable_value("seen") == 1 + 100 * 11
