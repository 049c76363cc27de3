"""Optimized programs of a core."""

import numpy as np
import pytest
import tensorflow as tf

from tpu.emulator import core_builder, optimization

tf1 = tf.compat.v1


def optimize(build, kept=()):
    """Returns the optimized GraphDef of `build(x)`, whose input is `x:0` and output `y:0`."""
    with tf.Graph().as_default() as graph, tf.device(core_builder.DEVICE):
        tf.identity(build(tf1.placeholder(tf.float32, [3], "x")), name="y")
    found = {name: graph.get_operation_by_name(name) for name in kept}
    nodes = optimization.optimize(graph.as_graph_def(), ["y"], found)
    return tf1.GraphDef(node=nodes)


def evaluate(graph_def, x):
    with tf.Graph().as_default(), tf1.Session() as session:
        (y,) = tf.import_graph_def(graph_def, return_elements=["y:0"])
        return session.run(y, {"import/x:0": x})


def nodes_of(graph_def):
    return {node.name: node for node in graph_def.node}


def test_a_power_of_3_becomes_products():
    graph_def = optimize(lambda x: x**3)
    assert "Pow" not in [node.op for node in graph_def.node]
    np.testing.assert_array_equal(evaluate(graph_def, [1, 2, 3]), [1, 8, 27])


def test_constants_are_folded():
    graph_def = optimize(lambda x: x + tf.reduce_sum(tf.ones([5, 7]), name="total"))
    assert nodes_of(graph_def)["total"].op == "Const"
    np.testing.assert_array_equal(evaluate(graph_def, [1, 2, 3]), [36, 37, 38])


def test_kept_nodes_are_not_evaluated():
    graph_def = optimize(lambda x: x + tf.reduce_sum(tf.ones([5, 7]) + 1, name="total"), ["total"])
    total = nodes_of(graph_def)["total"]
    assert (total.op, total.attr["T"].type) == ("Sum", tf.float32.as_datatype_enum)
    assert nodes_of(graph_def)[total.input[0]].op == "Const"
    np.testing.assert_array_equal(evaluate(graph_def, [1, 2, 3]), [71, 72, 73])


def test_kept_nodes_keep_their_outputs_and_control_inputs():
    def build(x):
        with tf.control_dependencies([tf.debugging.assert_greater(x, 0.0)]):
            _, top, rest = tf.split(x + 1, 3, name="parts")
        return top * rest

    graph_def = optimize(build, ["parts"])
    assert [node.op for node in graph_def.node].count("Split") == 1
    np.testing.assert_array_equal(evaluate(graph_def, [1, 2, 3]), [12])
    with pytest.raises(tf.errors.InvalidArgumentError, match="assertion failed"):
        evaluate(graph_def, [1, 2, -3])


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_graphs_accept_an_optimized_convolution(dtype):
    def build(x):
        image, kernel = tf.cast(tf.reshape(x, [1, 1, 3, 1]), dtype), tf.ones([1, 1, 1, 1], dtype)
        convolved = tf.nn.bias_add(tf.nn.conv2d(image, kernel, 1, "SAME"), tf.ones([1], dtype))
        return tf.cast(tf.nn.relu(convolved), tf.float32)

    result = evaluate(optimize(build), [1, -2, 3])
    np.testing.assert_array_equal(result.reshape([-1]), [2, 0, 4])


def test_a_program_that_cannot_be_optimized_stays_as_it_is(monkeypatch):
    def fail(*args, **kwargs):
        raise tf.errors.InvalidArgumentError(None, None, "no")

    monkeypatch.setattr(optimization.tf_optimizer, "OptimizeGraph", fail)
    graph_def = optimize(lambda x: x + tf.reduce_sum(tf.ones([5, 7]), name="total"), ["total"])
    assert nodes_of(graph_def)["total"].op == "Sum"
    np.testing.assert_array_equal(evaluate(graph_def, [1, 2, 3]), [36, 37, 38])
