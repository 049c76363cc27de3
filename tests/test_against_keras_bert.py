"""BERT against one built of Keras layers, with the same weights: outputs and gradients."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from models.text import bert
from tests import numerics, variable_values

LAYERS, HEADS, SIZE, FFN, VOCAB, POSITIONS, TYPES = 2, 3, 12, 20, 37, 16, 3
PARAMS = {
    **bert.default_params(),
    "num_layers": LAYERS,
    "hidden_size": SIZE,
    "num_heads": HEADS,
    "ffn_size": FFN,
    "vocab_size": VOCAB,
    "max_positions": POSITIONS,
    "type_vocab_size": TYPES,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
LENGTHS = np.array([[13], [7], [1]])
BATCH, LENGTH = 3, 13
RANDOM = np.random.default_rng(0)
FEATURES = {
    "input_ids": RANDOM.integers(0, VOCAB, [BATCH, LENGTH]).astype(np.int32),
    "input_mask": (np.arange(LENGTH) < LENGTHS).astype(np.int32),
    "segment_ids": RANDOM.integers(0, TYPES, [BATCH, LENGTH]).astype(np.int32),
}
# A layer has attention (12 operations), a feed-forward net (4), GELU (8), two sums and layer norms
# (8 each); then there are the embeddings and the pooler. Gradients are sums over the tokens.
NETWORK = LAYERS * (12 + 4 + 8 + 2 * 8) + 8 + 4
FORWARD = {"terms": FFN, "depth": NETWORK}
BACKWARD = {"terms": BATCH * LENGTH, "depth": 2 * NETWORK}


def loss_of(sequence_output, pooled_output):
    """A loss of all tokens, padding too: the keys that they see are masked, not the queries."""
    return tf.reduce_mean(sequence_output**3) + tf.reduce_mean(pooled_output**2)


@pytest.fixture(scope="module")
def ours():
    """Outputs, gradients and values of the variables, by name."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features = {name: tf.constant(value) for name, value in FEATURES.items()}
        sequence_output = bert.encode(features, PARAMS, training=True)
        outputs = sequence_output, bert.pool(sequence_output, PARAMS)
        variables = tf.compat.v1.trainable_variables()
        gradients = map(tf.convert_to_tensor, tf.gradients(loss_of(*outputs), variables))
        random = np.random.default_rng(1)

        def value_of(variable):
            noise = random.normal(size=variable.shape, scale=0.3).astype(np.float32)
            return noise + ("gamma" in variable.op.name)

        values = variable_values.assign_all(session, value_of)
        outputs, gradients = session.run([outputs, list(gradients)])
        return outputs, {v.op.name: g for v, g in zip(variables, gradients)}, values


class Weights:
    """Keras layers with the values of our variables; remembers which variable is which."""

    def __init__(self, values):
        self.values, self.variables = values, {}

    def table(self, name):
        table = tf.Variable(self.values[f"bert/embeddings/{name}_embeddings"])
        self.variables[f"bert/embeddings/{name}_embeddings"] = table
        return table

    def set(self, layer, *names):
        """Sets the weights of a built layer to our variables of these names, in its order."""
        layer.set_weights([
            self.values[name].reshape(weight.shape) for name, weight in zip(names, layer.weights)
        ])  # fmt: skip
        self.variables.update(zip(names, layer.weights))

    def dense(self, x, name, activation=None):
        scope = f"bert/{name}/dense"
        layer = tf.keras.layers.Dense(self.values[f"{scope}/bias"].shape[0], activation)
        layer.build(x.shape)
        self.set(layer, f"{scope}/kernel", f"{scope}/bias")
        return layer(x)

    def norm(self, x, name):
        layer = tf.keras.layers.LayerNormalization(epsilon=1e-12)
        layer.build(x.shape)
        self.set(layer, f"bert/{name}/LayerNorm/gamma", f"bert/{name}/LayerNorm/beta")
        return layer(x)

    def attend(self, x, mask, name):
        layer = tf.keras.layers.MultiHeadAttention(HEADS, SIZE // HEADS)
        layer(x, x)  # builds it
        parts = ("self/query", "self/key", "self/value", "output/dense")
        names = [f"bert/{name}/{part}/{kind}" for part in parts for kind in ("kernel", "bias")]
        self.set(layer, *names)
        return layer(x, x, attention_mask=mask)


def build_keras(weights):
    """The encoder and the pooler; returns the two outputs."""
    positions = tf.range(LENGTH)
    x = tf.gather(weights.table("word"), FEATURES["input_ids"])
    x += tf.gather(weights.table("token_type"), FEATURES["segment_ids"])
    x += tf.gather(weights.table("position"), positions)
    x = weights.norm(x, "embeddings")
    mask = tf.cast(FEATURES["input_mask"][:, np.newaxis], tf.bool)
    for i in range(LAYERS):
        scope = f"encoder/layer_{i}"
        x = weights.norm(
            x + weights.attend(x, mask, f"{scope}/attention"), f"{scope}/attention/output"
        )
        hidden = weights.dense(x, f"{scope}/intermediate", lambda x: tf.nn.gelu(x, True))
        x = weights.norm(x + weights.dense(hidden, f"{scope}/output"), f"{scope}/output")
    return x, weights.dense(x[:, 0], "pooler", "tanh")


@pytest.fixture(scope="module")
def keras(ours):
    """Outputs and gradients of the Keras layers, the latter by our names."""
    with context.eager_mode():
        weights = Weights(ours[-1])
        with tf.GradientTape() as tape:
            outputs = build_keras(weights)
            loss = loss_of(*outputs)
        gradients = tape.gradient(loss, weights.variables)
        dense = {name: tf.convert_to_tensor(value).numpy() for name, value in gradients.items()}
        return [output.numpy() for output in outputs], dense


def test_sequence_and_pooled_output(ours, keras):
    for our, their in zip(ours[0], keras[0]):
        numerics.assert_close(our, their, **FORWARD)


def test_every_gradient(ours, keras):
    assert ours[1].keys() == keras[1].keys()
    for name, gradient in ours[1].items():
        expected = keras[1][name].reshape(gradient.shape)
        # The softmax cancels the bias of a key: a sum of terms as large as those of the kernel.
        magnitude = np.abs(keras[1][name.replace("key/bias", "key/kernel")]).max()
        numerics.assert_close(gradient, expected, **BACKWARD, magnitude=magnitude, name=name)


def test_gelu_has_the_tanh_form(session):
    x = np.linspace(-5, 5, 101)
    tanh_form = x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
    found, exact = session.run([bert.gelu(tf.constant(x, tf.float32)), tf.nn.gelu(x)])
    numerics.assert_close(found, tanh_form, depth=8)
    numerics.assert_far(exact, tanh_form, depth=8)
