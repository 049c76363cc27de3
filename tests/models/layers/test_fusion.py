"""Functions that XLA compiles on a CPU: the values and gradients of TensorFlow's."""

import numpy as np
import pytest
import tensorflow as tf

from models.layers import attention, device, dropout, fusion, normalization
from models.text import bert
from tests import numerics
from tests.marks import runs_bfloat16

SHAPE = (13, 7, 5)
SEEDS = {"dropout_seed": [[5, 6]]}


def layer_norm(x):
    with tf.compat.v1.variable_scope("", reuse=tf.compat.v1.AUTO_REUSE):
        return normalization.layer_norm(x)


def attend(x):
    query = x[:, tf.newaxis]
    key, value = query[..., ::-1, :], tf.sin(query)
    return attention.attend(query, key, value, tf.zeros([1, 1, 1, 7]), 0.4, training=True)


# Operations on a value, with the powers and shares of softmax and tanh.
LAYERS = {
    "gelu": (bert.gelu, {"depth": 20}),
    "layer_norm": (layer_norm, {"terms": 5, "depth": 20}),
    "dropout": (lambda x: dropout.dropout(x, 0.4, training=True), {}),
    "attention": (attend, {"terms": 7, "depth": 30}),
}


def compute(layer, x, upstream, fuses, dtype="float32"):
    """Returns what a layer and its gradient are, and the types of the operations."""
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        x, upstream = tf.constant(x), tf.constant(upstream, dtype)
        with device.scope({}, fuses), dropout.seeded(SEEDS):
            y = layer(tf.cast(x, dtype))
        (gradient,) = tf.gradients(y, x, tf.reshape(upstream, tf.shape(y)))
        session.run(tf.compat.v1.global_variables_initializer())
        found = session.run([tf.cast(y, tf.float32), gradient])
        return found, {op.type for op in graph.get_operations()}


@pytest.fixture
def values():
    return np.random.default_rng(3).normal(size=(2, *SHAPE)).astype(np.float32)


@pytest.mark.parametrize("name", LAYERS)
def test_values_and_gradients_are_those_of_tensorflow(values, name):
    layer, arithmetic = LAYERS[name]
    fused, kinds = compute(layer, *values, fuses=True)
    plain, plain_kinds = compute(layer, *values, fuses=False)
    assert "PartitionedCall" in kinds
    assert "PartitionedCall" not in plain_kinds
    for actual, expected in zip(fused, plain):
        numerics.assert_close(actual, expected, **arithmetic)


@pytest.mark.parametrize("width", [5, 12, 96])  # 12 and 96 are halved to 6
def test_layer_norm_has_the_gradients_of_its_variables(session, width):
    rows, upstream = np.random.default_rng(3).normal(size=(2, 13, 7, width))
    x = tf.constant(rows, tf.float32)
    with device.scope({}, fuses=True):
        y = layer_norm(x)
    variables = tf.compat.v1.trainable_variables()
    assert [variable.op.name for variable in variables] == ["layer_norm/gamma", "layer_norm/beta"]
    found = tf.gradients(y, [x, *variables], tf.constant(upstream, tf.float32))
    session.run(tf.compat.v1.global_variables_initializer())
    for variable, value in zip(variables, (3.0, 0.2)):
        variable.load(np.full(width, value), session)
    found = session.run([y, *found])

    centered = rows - rows.mean(-1, keepdims=True)
    inverse = (rows.var(-1, keepdims=True) + 1e-6) ** -0.5
    normalized, scaled = centered * inverse, 3.0 * upstream
    covariance = (scaled * normalized).mean(-1, keepdims=True)
    x_gradient = inverse * (scaled - scaled.mean(-1, keepdims=True) - normalized * covariance)
    gamma_gradient, beta_gradient = (upstream * normalized).sum((0, 1)), upstream.sum((0, 1))
    expected = 3.0 * normalized + 0.2, x_gradient, gamma_gradient, beta_gradient
    for actual, exact in zip(found, expected):
        # Sums of 91 rows; the powers of the standard deviation.
        numerics.assert_close(actual, exact, terms=91, depth=20)
    numerics.assert_far(found[2], beta_gradient, terms=91, depth=20)


@runs_bfloat16
@pytest.mark.parametrize("name", LAYERS)
def test_bfloat16_is_computed_in_float32(values, name):
    layer, _ = LAYERS[name]
    fused, _ = compute(layer, *values, fuses=True, dtype="bfloat16")
    plain, _ = compute(layer, *values, fuses=False)
    for actual, expected in zip(fused, plain):
        # Roundings: of x and upstream; in attention also of scores, weights, outputs, and gradients
        # of each.
        numerics.assert_close(actual, expected, terms=9, dtype="bfloat16", sides=1)


def test_integers_get_no_gradient(session):
    x, shift = tf.constant([3.0, 5.0]), tf.constant([1, 2])
    with device.scope({}, fuses=True):
        y = fusion.fuse(lambda x, shift: x * tf.cast(shift, x.dtype), x, shift)
    gradients = tf.gradients(y, [x, shift])
    assert gradients[1] is None
    np.testing.assert_array_equal(session.run([y, gradients[0]]), [[3, 10], [1, 2]])


def test_a_while_loop_of_tensorflow_1_trains(session):
    """As in `engine.train.host_loop`; it does not see the result of a call of a tf.function."""
    variable = tf.compat.v1.get_variable("v", initializer=[2.0, 3.0])

    def body(i):
        with device.scope({}, fuses=True):
            loss = fusion.fuse(tf.square, variable.read_value())
        (gradient,) = tf.gradients(loss, variable)
        with tf.control_dependencies([variable.assign_sub(0.25 * gradient, read_value=False)]):
            return i + 1

    loop = tf.while_loop(lambda i: i < 3, body, [0], parallel_iterations=1)
    session.run(variable.initializer)
    session.run(loop)
    np.testing.assert_array_equal(session.run(variable), np.array([2.0, 3.0]) / 2**3)


@pytest.mark.parametrize(("use_tpu", "fuses"), [(True, True), (False, False)])
def test_a_tpu_and_an_export_get_operations(graph, use_tpu, fuses):
    with device.scope({"use_tpu": use_tpu}, fuses):
        fusion.fuse(tf.square, tf.ones(SHAPE))
    assert [op.type for op in graph.get_operations()] == ["Const", "Square"]


def test_layers_with_the_same_shapes_share_a_kernel():
    """In other graphs too: XLA compiles a function once for each name and shape."""
    names = []
    for _ in range(2):
        with tf.Graph().as_default() as graph, device.scope({}, fuses=True):
            for _ in range(3):
                bert.gelu(tf.ones(SHAPE))
        calls = [op for op in graph.get_operations() if op.type == "PartitionedCall"]
        names += [op.get_attr("f").name for op in calls]
    assert len(names) == 6
    assert len(set(names)) == 1
