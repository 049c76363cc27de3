"""Functions that NodeDefs call, and the loops and conditionals around operations."""

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from tpu.graph import nodes, walks
from tpu.graph.control_flow import GraphAnalysis

v1 = tf.compat.v1


def test_root_is_the_tensor_that_operations_pass_on():
    with tf.Graph().as_default():
        first = tf.constant([1.0, 2.0, 3.0])
        passed = tf.cast(tf.identity(first), tf.float16)
    assert walks.root(passed) is passed
    assert walks.root(passed, ("Cast", "Identity")) is first


def test_branches_of_a_conditional_are_its_functions_in_order(monkeypatch):
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", True)
    with tf.Graph().as_default() as graph:
        value = v1.placeholder(tf.float32, [3])
        tf.cond(value[0] > 0, lambda: tf.sin(value), lambda: tf.cos(value))
    (conditional,) = [op for op in graph.get_operations() if op.type == "StatelessIf"]
    names = [function.name for function in nodes.references(conditional.node_def)]
    bodies = [nodes.definition(graph, name) for name in names]
    types = [[node.op for node in body.node_def if node.op in ("Sin", "Cos")] for body in bodies]
    assert types == [["Sin"], ["Cos"]]


def test_functions_that_functions_call_are_found():
    inner = tf.function(tf.sin, autograph=False)
    outer = tf.function(lambda value: inner(value) + 1, autograph=False)
    with tf.Graph().as_default() as graph:
        outer(tf.zeros([3]))
    found = nodes.all_called(graph.as_graph_def().node, lambda name: nodes.definition(graph, name))
    types = [{node.op for node in function.node_def} for function in found.values()]
    assert len(found) == 2
    assert any("Sin" in kinds for kinds in types)


def test_a_node_becomes_another_operation():
    with tf.Graph().as_default():
        node = tf.add(tf.zeros([3]), 1.0, name="sum").op.node_def
    nodes.replace(node, "Sub", ["a", "^b"], T=tf.float64)
    assert (node.op, node.name, list(node.attr)) == ("Sub", "sum", ["T"])
    assert nodes.data_inputs(node) == ["a"]
    assert nodes.control_inputs(node) == ["^b"]


def test_conditions_around_an_operation():
    with tf.Graph().as_default() as graph:
        steps = v1.placeholder(tf.int32, [])

        def body(i):
            return tf.cond(tf.equal(i, 3), lambda: i + 1, lambda: i + 2)

        tf.while_loop(lambda i: i < steps, body, [0])
    analysis = GraphAnalysis(graph.get_operations())
    first, second = [op for op in graph.get_operations() if op.type == "AddV2"]
    conditional, loop = analysis.conditions_of(first)
    assert (conditional.predicate.type, conditional.branch) == ("Equal", 1)
    assert (loop.predicate.type, loop.branch) == ("LoopCond", None)
    assert analysis.are_exclusive(first, second)
    assert not analysis.are_exclusive(first, first)
