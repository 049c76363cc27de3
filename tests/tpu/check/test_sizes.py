"""Sizes of a step: tiles as libtpu pads them, and how often loops and branches count."""

import importlib.util

import pytest
import tensorflow as tf

from tests.tpu.check.regression import make_estimator, make_model_fn, rows, squares
from tpu.check import check_program, graph_builder, sizes
from tpu.check.graph_builder import CheckedMode
from tpu.connect import topology

tf1 = tf.compat.v1
SLICE = topology.find("1x2")
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="libtpu is not installed: Linux, x86-64, Python 3.11 and the 'check' extra",
)


@pytest.mark.parametrize(
    ("dtype", "shape", "num_bytes"),
    [
        (tf.float32, [4, 1000], 16384),
        (tf.float32, [1, 1000], 8192),
        (tf.float32, [17, 1000], 98304),
        (tf.bfloat16, [17, 1000], 49152),
        (tf.bfloat16, [1, 1000], 8192),
        (tf.int8, [33, 1000], 40960),
        (tf.bool, [1, 1000], 8192),
        (tf.int64, [3, 1000], 32768),
        (tf.float32, [13, 7, 5], 20480),
        (tf.float32, [7, 7, 3, 64], 86016),
        (tf.bfloat16, [2, 7, 9, 11], 36864),
        (tf.float32, [], 1024),
        (tf.float32, [300], 2048),
        (tf.bfloat16, [1025], 4096),
    ],
)
def test_tiles_are_those_of_the_compiler(dtype, shape, num_bytes):
    """The bytes are those that libtpu 0.0.34 gives to an argument of a program for v3."""
    assert sizes.tiled_bytes(tf.TensorSpec(shape, dtype)) == num_bytes


def measure(loss):
    estimator = make_estimator(make_model_fn(loss))
    step = graph_builder.build_once(CheckedMode(estimator, rows, "train", SLICE))
    return sizes.measure(step.graph, step.program)


PRODUCT = 2 * 8 * 5 * 5  # FLOPs of [8, 5] x [5, 5]


def kernel():
    return tf1.get_variable("kernel", [5, 5], use_resource=True)


def plain(features, labels):
    return squares(tf.matmul(features, kernel()), labels)


def loop(features, labels, trips=7, inner=1):
    weights = kernel()

    def inside(j, x):
        return j + 1, tf.matmul(x, weights)

    def body(i, x):
        _, x = tf.while_loop(lambda j, _: j < inner, inside, (0, x), maximum_iterations=inner)
        return i + 1, x

    _, x = tf.while_loop(lambda i, _: i < trips, body, (0, features), maximum_iterations=trips)
    return squares(x, labels)


def nested(features, labels):
    return loop(features, labels, trips=3, inner=5)


@tf.function
def repeat(x, weights):
    for _ in tf.range(11):
        x = tf.matmul(x, weights)
    return x


def function(features, labels):
    return squares(repeat(features, kernel()), labels)


def recurrent(features, labels):
    cell = tf1.nn.rnn_cell.BasicRNNCell(5)
    outputs, _ = tf1.nn.dynamic_rnn(cell, tf.stack([features] * 13, 1), dtype=tf.float32)
    return squares(outputs[:, -1], labels)


@pytest.mark.parametrize(
    ("loss", "products"),
    # Forward, and backward two products each; of `recurrent` with [8, 10] x [10, 5].
    [(loop, 7 * 3), (nested, 15 * 3), (function, 11 * 3), (recurrent, 13 * 3 * 2)],
)
def test_loops_count_each_iteration(loss, products):
    found = measure(loss)
    assert found.not_counted == ()
    # Besides the products there are small operations for each iteration.
    assert products * PRODUCT < found.flops < 1.25 * products * PRODUCT


def endless(features, labels):
    x = tf.stop_gradient(features)
    _, x = tf.while_loop(lambda i, x: tf.reduce_sum(x) < 9, lambda i, x: (i + 1, x * 2), (0, x))
    return squares(x, labels)


def test_loop_of_unknown_length_is_reported():
    (reason,) = measure(endless).not_counted
    place = f"{__file__.rpartition('/')[2]}:{endless.__code__.co_firstlineno + 2}"
    assert reason.startswith("FLOPs and activations of all but one iteration of the loop at ")
    assert reason.endswith(place)


def test_a_limit_of_infinity_is_no_limit():
    def loss(features, labels):
        def condition(i, x):
            return tf.logical_and(i < float("inf"), tf.reduce_sum(x) < 100.0)

        _, x = tf.while_loop(condition, lambda i, x: (i + 1.0, x + 1.0), (0.0, features))
        return squares(tf.matmul(x, kernel()), labels)

    (reason,) = measure(loss).not_counted
    assert reason.startswith("FLOPs and activations of all but one iteration of the loop at ")


def test_conditional_counts_its_costlier_branch():
    def loss(features, labels):
        step, weights = tf1.train.get_global_step(), kernel()

        def twice():
            return tf.matmul(tf.matmul(features, weights), weights)

        x = tf.cond(tf.less(step, 5), twice, lambda: tf.matmul(features, weights))
        return squares(x, labels)

    found = measure(loss)
    assert found.not_counted == ("FLOPs of the cheaper branch of each conditional",)
    # Both branches would be 2 products more.
    assert 5 * PRODUCT < found.flops < 8 * PRODUCT


def test_einsum_and_depthwise_convolutions_have_flops():
    def loss(features, labels):
        x = tf.einsum("bi,ij->bj", features, kernel())
        image = tf.reshape(x, [8, 1, 5, 1])
        filters = tf1.get_variable("filters", [1, 3, 1, 5], use_resource=True)
        x = tf.nn.depthwise_conv2d(image, filters, [1, 1, 1, 1], "SAME")
        return squares(tf.reshape(x, [8, 25]), labels)

    depthwise = 2 * 8 * 5 * 5 * 3
    dense = 2 * 8 * 25
    assert measure(loss).flops > 2 * PRODUCT + 3 * depthwise + 3 * dense


@pytest.mark.slow
@needs_libtpu
def test_compiled_loops_count_each_iteration():
    estimator = make_estimator(make_model_fn(nested))
    estimator._ctx._train_batch_size = 64
    report = check_program(estimator, {"train": rows}, "v3-8")
    step_time = report.modes["train"].step_time
    assert step_time.unknown_loops == ()
    assert step_time.custom_calls == ()
