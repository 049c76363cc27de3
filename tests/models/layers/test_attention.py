"""Multi-head attention, judged by tf.keras.layers.MultiHeadAttention with the same weights."""

import numpy as np
import pytest
import tensorflow as tf

from models.layers import attention, device, dropout
from tests import numerics, variable_values
from tests.marks import runs_bfloat16

BATCH, LENGTH, MEMORY, HEADS, HEAD_SIZE = 3, 7, 5, 2, 4
HIDDEN = HEADS * HEAD_SIZE
PARAMS = {"num_heads": HEADS, "attention_dropout": 0.0}
# A projection and its bias; scores, their scale and mask; a softmax, of peak, power, sum and share;
# the mean; the output and its bias.
ATTENTION = {"terms": HIDDEN, "depth": 2 + 3 + 4 + 1 + 2}

on_each_device = pytest.mark.parametrize("use_tpu", [False, True])


@pytest.fixture
def random():
    return np.random.default_rng(1)


def run(build, *inputs):
    """The result of `build(*inputs)`, and the random values of its variables.

    Values that leave the scores near 1: a softmax amplifies their errors as much as they are large.
    """
    random = np.random.default_rng(2)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        result = build(*map(tf.constant, inputs))
        values = variable_values.assign_all(
            session, lambda v: random.normal(0, HIDDEN**-0.5, v.shape).astype(np.float32)
        )
        return session.run(result), values


def keras_attention(values, query, memory, mask, scale_of_scores=1.0):
    """Keras' layer with our weights, or one whose scores have another scale than its own."""
    layer = tf.keras.layers.MultiHeadAttention(HEADS, HEAD_SIZE)
    layer(query, memory)
    kernels = {"output": values["output/kernel"].reshape(HEADS, HEAD_SIZE, HIDDEN)}
    biases = {"output": values["output/bias"]}
    for name, parts in (
        ("query_key_value", ["query", "key", "value"]),
        ("query", ["query"]),
        ("key_value", ["key", "value"]),
    ):
        if f"{name}/kernel" in values:
            kernel = values[f"{name}/kernel"].reshape(HIDDEN, len(parts), HEADS, HEAD_SIZE)
            bias = values[f"{name}/bias"].reshape(len(parts), HEADS, HEAD_SIZE)
            kernels.update({part: kernel[:, i] for i, part in enumerate(parts)})
            biases.update({part: bias[i] for i, part in enumerate(parts)})
    for weights in (kernels, biases):
        weights["query"] = weights["query"] * scale_of_scores
    names = ["query", "key", "value", "output"]
    layer.set_weights([tensor for name in names for tensor in (kernels[name], biases[name])])
    return layer(query, memory, attention_mask=mask).numpy()


@on_each_device
def test_self_attention_is_keras(random, eager, use_tpu):
    x = random.normal(size=[BATCH, LENGTH, HIDDEN]).astype(np.float32)
    mask = random.integers(0, 2, [BATCH, LENGTH, LENGTH]).astype(bool)
    mask[:, :, 0] = True  # at least one key per query

    def ours(x, mask):
        bias = attention.attention_bias(mask)[:, tf.newaxis]
        with device.scope({"use_tpu": use_tpu}):
            return attention.self_attention(x, bias, PARAMS, training=False)

    got, values = run(ours, x, mask)
    assert got.shape == (BATCH, LENGTH, HIDDEN)
    numerics.assert_close(got, keras_attention(values, x, x, mask), **ATTENTION)
    by_another_scale = keras_attention(values, x, x, mask, HEAD_SIZE**-0.5)
    numerics.assert_far(got, by_another_scale, **ATTENTION)
    without_bias = {**values, "output/bias": 0 * values["output/bias"]}
    numerics.assert_far(got, keras_attention(without_bias, x, x, mask), **ATTENTION)


@on_each_device
def test_cross_attention_is_keras(random, eager, use_tpu):
    x = random.normal(size=[BATCH, LENGTH, HIDDEN]).astype(np.float32)
    memory = random.normal(size=[BATCH, MEMORY, HIDDEN]).astype(np.float32)
    mask = random.integers(0, 2, [BATCH, LENGTH, MEMORY]).astype(bool)
    mask[:, :, 0] = True

    def ours(x, memory, mask):
        bias = attention.attention_bias(mask)[:, tf.newaxis]
        with device.scope({"use_tpu": use_tpu}):
            key, value = attention.keys_values(memory, PARAMS)
            return attention.cross_attention(x, key, value, bias, PARAMS, training=False)

    got, values = run(ours, x, memory, mask)
    numerics.assert_close(got, keras_attention(values, x, memory, mask), **ATTENTION)


@on_each_device
def test_with_a_cache_position_after_position_is_causal_self_attention(random, use_tpu):
    x = random.normal(size=[BATCH, LENGTH, HIDDEN]).astype(np.float32)
    causal = np.tril(np.ones([LENGTH, LENGTH], bool))

    def both(x):
        reuse = tf.compat.v1.variable_scope("", reuse=tf.compat.v1.AUTO_REUSE)
        with device.scope({"use_tpu": use_tpu}), reuse:
            whole = attention.self_attention(
                x, attention.attention_bias(causal), PARAMS, training=False
            )
            empty = tf.zeros([BATCH, 1, HEADS, LENGTH, HEAD_SIZE])
            cache, steps = attention.KeyValueCache(empty, empty, None), []
            for cache.position in range(LENGTH):
                token = x[:, cache.position : cache.position + 1]
                bias = attention.attention_bias(tf.range(LENGTH) <= cache.position)
                steps.append(attention.self_attention(token, bias, PARAMS, False, cache))
        return whole, tf.concat(steps, axis=1)

    (whole, steps), _ = run(both, x)
    numerics.assert_close(steps, whole, **ATTENTION)


def test_dropout_is_of_the_weights_and_in_training_alone(random):
    rate, length = 0.4, 64
    query, key = random.normal(size=[2, BATCH, HEADS, length, length]).astype(np.float32)
    # The mean of rows of the identity is the weights themselves. Twice, because what drops values,
    # or their mean, does not drop the same of both.
    value = np.tile(np.eye(length, dtype=np.float32), [BATCH, HEADS, 1, 2])

    def both(query, key, value):
        none = tf.zeros([1])
        weights = [
            attention.attend(query, key, value, none, dropout, training)
            for dropout, training in ((0.0, True), (rate, False), (rate, True))
        ]
        return [tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / length**0.5), *weights]

    (expected, without, evaluated, trained), _ = run(both, query, key, value)
    of_scores_and_softmax = {"terms": length, "depth": 2 + 4}
    numerics.assert_close(without[..., :length], expected, **of_scores_and_softmax)
    numerics.assert_close(evaluated, without, **of_scores_and_softmax)
    trained, again = np.split(trained, 2, axis=-1)
    np.testing.assert_array_equal(again, trained)  # sums of one number and of zeros
    dropped = trained == 0
    assert abs(dropped.mean() - rate) < 0.02
    kept_share = 1 - round(rate * 2**16) / 2**16
    numerics.assert_close(
        trained[~dropped], expected[~dropped] / kept_share, **of_scores_and_softmax
    )


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_in_training_a_tpu_computes_the_same_outputs_and_gradients(random, dtype):
    tensors = random.normal(size=[4, BATCH, HEADS, LENGTH, LENGTH]).astype(np.float32)
    visible = random.integers(0, 2, [BATCH, 1, 1, LENGTH]) > 0
    rate = 0.5

    def both(query, key, value, upstream):
        seeds, bias = {"dropout_seed": tf.constant([[5, 6]])}, attention.attention_bias(visible)

        def attend(value):
            with device.scope({"use_tpu": True}), dropout.seeded(seeds):
                inputs = (tf.cast(tensor, dtype) for tensor in (query, key, value))
                return tf.cast(attention.attend(*inputs, bias, rate, training=True), tf.float32)

        # Of an identity, the outputs are the weights: 0 where dropout dropped them.
        scale = tf.where(attend(tf.eye(LENGTH, batch_shape=[BATCH, HEADS])) > 0, 1 / rate, 0.0)
        scores = tf.matmul(query, key, transpose_b=True) / LENGTH**0.5 + bias
        plain = tf.matmul(tf.nn.softmax(scores) * scale, value)
        return [
            [outputs, *tf.gradients(outputs, [query, key, value], upstream)]
            for outputs in (attend(value), plain)
        ]

    ((found, expected), _) = run(both, *tensors)
    for tensor, like in zip(found, expected):
        # bfloat16 has 8 bits; a value has passed five roundings, in sums of LENGTH terms.
        step = np.finfo(np.float32).eps if dtype == tf.float32 else 2.0**-8
        np.testing.assert_allclose(tensor, like, rtol=0, atol=5 * LENGTH * step * np.ptp(like))


def test_blocks_of_causal_attention_are_attention_with_a_causal_mask(random, monkeypatch):
    monkeypatch.setattr(attention, "_CAUSAL_BLOCK", 3)  # of 7 queries: two blocks, and one of 1
    tensors = random.normal(size=[4, BATCH, HEADS, LENGTH, HEAD_SIZE]).astype(np.float32)
    causal = np.tril(np.ones([LENGTH, LENGTH], bool))

    def run_all(query, key, value, upstream):
        tensors, found = [query, key, value], []
        bias = attention.attention_bias(causal)
        for attend in (attention.attend_causally, attention.attend):
            with device.scope({"use_tpu": True}):
                outputs = attend(*tensors, bias, training=True)
            found.append([outputs, *tf.gradients(outputs, tensors, upstream)])
        return found

    (found, expected), _ = run(run_all, *tensors)
    for tensor, like in zip(found, expected):
        # Sums over keys or queries in another order, of a softmax and its gradient.
        numerics.assert_close(tensor, like, terms=LENGTH, depth=10)
        numerics.assert_far(tensor[:, :, ::-1], like, terms=LENGTH, depth=10)


def test_blocks_of_causal_attention_leave_out_later_keys(graph, monkeypatch):
    monkeypatch.setattr(attention, "_CAUSAL_BLOCK", 3)
    query = tf.zeros([BATCH, HEADS, LENGTH, HEAD_SIZE])
    with device.scope({"use_tpu": True}):
        attention.attend_causally(query, query, query, tf.zeros([LENGTH, LENGTH]), training=True)
    products = [op for op in graph.get_operations() if op.type == "BatchMatMulV2"]
    scores = [op.outputs[0].shape.as_list()[2:] for op in products if op.get_attr("adj_y")]
    assert scores == [[3, 3], [3, 6], [1, 7]]


ON_DEVICES = {"fused": {"fuses": True}, "tpu": {"params": {"use_tpu": True}}}


def gradients_of_bias(bias, dtype=tf.float32):
    """Gradients of an attention bias on each device, and those of TensorFlow."""
    random = np.random.default_rng(3)
    tensors = random.normal(size=[4, BATCH, HEADS, LENGTH, LENGTH]).astype(np.float32)

    def gradients(query, key, value, upstream, bias):
        found = []
        for arguments in (*ON_DEVICES.values(), {}):
            with device.scope(**{"params": {}, **arguments}):
                inputs = [tf.cast(tensor, dtype) for tensor in (query, key, value)]
                outputs = attention.attend(*inputs, bias, training=True)
            found += tf.gradients(tf.cast(outputs, tf.float32), bias, upstream)
        return found

    found, _ = run(gradients, *tensors, bias)
    return dict(zip(ON_DEVICES, found)), found[-1]


@pytest.mark.parametrize(
    "shape", [[LENGTH], [1, HEADS, 1, LENGTH], [LENGTH, LENGTH], [BATCH, HEADS, LENGTH, LENGTH]]
)
def test_a_learned_bias_has_its_gradient(random, shape):
    bias = random.normal(size=shape).astype(np.float32)
    found, expected = gradients_of_bias(bias)
    # Sums over the axes of broadcasting, of products over a row, of two softmaxes.
    sums = {"terms": BATCH * HEADS * LENGTH * LENGTH, "depth": 10}
    for name, gradient in found.items():
        numerics.assert_close(gradient, expected, **sums, name=name)
        numerics.assert_far(np.zeros(shape), expected, **sums)


@runs_bfloat16
def test_a_learned_bias_of_bfloat16_scores_has_its_gradient_in_float32(random):
    bias = random.normal(size=[HEADS, 1, LENGTH]).astype(np.float32)
    found, _ = gradients_of_bias(bias, tf.bfloat16)
    _, expected = gradients_of_bias(bias)
    # Roundings: of query, key, value, scores, weights and outputs, and of the gradients of three.
    arithmetic = {"terms": 9, "dtype": "bfloat16", "sides": 1}
    for gradient in found.values():
        assert gradient.dtype == np.float32
        numerics.assert_close(gradient, expected, **arithmetic)
        numerics.assert_far(np.zeros_like(expected), expected, **arithmetic)


@pytest.mark.parametrize("name", ON_DEVICES)
def test_the_gradient_of_a_mask_is_not_run(name, graph):
    query = tf.zeros([BATCH, HEADS, LENGTH, HEAD_SIZE])
    with device.scope(**{"params": {}, **ON_DEVICES[name]}):
        bias = attention.attention_bias(tf.ones([LENGTH, LENGTH], bool))
        outputs = attention.attend(query, query + 1, query, bias, training=True)
    (gradient,) = tf.gradients(outputs, query)
    run = tf.compat.v1.graph_util.extract_sub_graph(graph.as_graph_def(), [gradient.op.name])
    assert "BroadcastGradientArgs" in {node.op for node in graph.as_graph_def().node}
    assert "BroadcastGradientArgs" not in {node.op for node in run.node}
