"""Lowering of a step by XLA on a CPU, which lacks some of a TPU's operations."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from tests.tpu.check.regression import check, make_model_fn, squares
from tpu.graph import substitutes

tf1 = tf.compat.v1


def resized(features, labels):
    images = tf1.layers.dense(tf.reshape(features, [-1, 1, 5, 1]), 2)
    large = tf1.image.resize_nearest_neighbor(images, [2, 10])
    return squares(tf.reshape(large, [-1, 40]), labels)


def test_gradient_of_nearest_resizing_is_lowered():
    report = check(make_model_fn(resized))
    assert (report.findings, report.not_checked) == ((), ("TPU compiler: skipped",))


SIZES = [((2, 3), (4, 9)), ((3, 4), (7, 5)), ((6, 5), (3, 2))]


@pytest.mark.parametrize("options", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(("size", "new_size"), SIZES)
def test_substitute_equals_the_gradient_of_tensorflow(session, options, size, new_size):
    gradient = np.random.default_rng(0).normal(size=[2, *new_size, 3]).astype(np.float32)
    names = dict(zip(("align_corners", "half_pixel_centers"), options))
    expected = tf.raw_ops.ResizeNearestNeighborGrad(
        grads=tf.constant(gradient), size=list(size), **names
    )
    graph_def = tf1.GraphDef()
    value = graph_def.node.add(name="value", op="Placeholder")
    value.attr["dtype"].type = tf.float32.as_datatype_enum
    node = graph_def.node.add(name="grad", op=expected.op.type, input=["value", "size"])
    assert substitutes.substitute(expected.op, node, graph_def.library)
    actual = tf.import_graph_def(graph_def, {"value:0": tf.constant(gradient)}, ["grad:0"])
    np.testing.assert_allclose(*session.run([actual[0], expected]), rtol=1e-5, atol=1e-6)


def test_operation_of_tpus_only_is_not_checked():
    def loss(features, labels):
        largest = gen_xla_ops.xla_all_reduce(features, [[0, 1]], "Max", "CrossReplica")
        return squares(tf.stop_gradient(largest), labels)

    report = check(make_model_fn(loss))
    assert report.findings == ()
    (reason,) = report.not_checked
    assert "XlaAllReduce has a kernel on a TPU, but not in XLA on a CPU" in reason


def test_host_call_every_few_steps_is_lowered():
    """The outfeed is then inside a conditional."""

    def host_call(features, labels):
        return lambda x: x, [features]

    report = check(make_model_fn(host_call=host_call), experimental_host_call_every_n_steps=5)
    assert (report.findings, report.not_checked) == ((), ("TPU compiler: skipped",))


def test_a_replicated_variable_is_lowered_and_counted():
    """Each core has its own variable behind one handle, as in Mesh TensorFlow."""

    def loss(features, labels):
        with tf.init_scope():
            parts = [
                tf1.get_variable(f"part_{i}", [5, 3], trainable=False, use_resource=True)
                for i in range(2)
            ]
        context = tf1.get_default_graph()._get_control_flow_context()
        while not hasattr(context, "get_replicated_var_handle"):
            context = context.outer_context
        handle = context.get_replicated_var_handle("part", "part", parts)
        part = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        return squares(features @ part, labels)

    report = check(make_model_fn(loss))
    assert (report.findings, report.not_checked) == ((), ("TPU compiler: skipped",))
    assert report.modes["train"].sizes.slot_bytes == 5 * 3 * 4 + 8  # and the global step
