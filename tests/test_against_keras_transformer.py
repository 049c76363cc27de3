"""The Transformer against one built of Keras layers, with the same weights."""

import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from benchmarks.peers import keras_transformer
from models.text import seq2seq, transformer
from tests import numerics, variable_values

LENGTH, HEADS, SIZE, LAYERS = 13, 2, 16, 2
PARAMS = {
    **transformer.default_params(),
    "num_layers": LAYERS,
    "hidden_size": SIZE,
    "ffn_size": 24,
    "num_heads": HEADS,
    "vocab_size": 37,
    "dropout": 0.0,
}
ROWS = np.array(
    [
        [5, 6, 7, 1, 8, 9, 1, 0, 0, 0, 0, 0, 0],
        [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 1],
        [22, 1, 23, 1, 24, 25, 1, 26, 27, 28, 29, 1, 0],
    ],
    np.int32,
)
FEATURES = {"source": ROWS, "target": np.where(ROWS < 20, ROWS, 3)}
# Operations of the layers as in tests/models/text/test_transformer.py, of the embedding and the
# logits; of the loss, a mean over the tokens of a log-softmax; and of the backward pass. Gradients
# are sums over the tokens.
NETWORK = LAYERS * (32 + 52) + 10
FORWARD = {"terms": ROWS.size, "depth": NETWORK + 8}
BACKWARD = {"terms": ROWS.size, "depth": 2 * (NETWORK + 8)}


@pytest.fixture(scope="module")
def ours():
    """Logits, loss, gradients and values of the variables, by name."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features = {name: tf.constant(rows) for name, rows in FEATURES.items()}
        labels = features["target"]
        outputs = transformer.inference(features, PARAMS, training=True)
        losses, weights, *_ = seq2seq.losses(features, labels, outputs, PARAMS)["cross_entropy"]
        loss = tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)
        variables = tf.compat.v1.trainable_variables()
        gradients = map(tf.convert_to_tensor, tf.gradients(loss, variables))
        random = np.random.default_rng(0)

        def value_of(variable):
            noise = random.normal(size=variable.shape, scale=0.3).astype(np.float32)
            return noise + ("gamma" in variable.op.name)

        values = variable_values.assign_all(session, value_of)
        names = [variable.op.name for variable in variables]
        logits, loss, gradients = session.run([outputs["logits"], loss, list(gradients)])
        return logits, loss, dict(zip(names, gradients)), values


def as_keras(name, values):
    """Returns the value of the Keras variable `name`, from our `values`."""
    if name.startswith("embedding"):
        return values["embedding/weights"]
    stack, layer, part, rest = re.fullmatch(r"(\w+?)_(\d)_(\w+?)((?:_|/).*)", name).groups()
    sublayer = {"self": "self_attention", "cross": "cross_attention", "ffn": "ffn"}[part]
    scope = f"{stack}/layer_{layer}/{sublayer}"
    kind = rest.rpartition("/")[2].removesuffix(":0")
    if rest.startswith("_"):  # a separate layer: _norm, _hidden, _output
        own = rest[1:].partition("/")[0]
        return values[f"{scope}/{'layer_norm' if own == 'norm' else own}/{kind}"]
    own = rest.split("/")[-2]
    if own == "attention_output":
        value = values[f"{scope}/output/{kind}"]
        return value.reshape(HEADS, SIZE // HEADS, SIZE) if kind == "kernel" else value
    parts = {"self": ["query", "key", "value"]}.get(part)
    if not parts:
        parts = ["query"] if own == "query" else ["key", "value"]
    value = values[f"{scope}/{'_'.join(parts)}/{kind}"]
    split = value.reshape(*value.shape[:-1], len(parts), HEADS, SIZE // HEADS)
    return split[..., parts.index(own), :, :]


@pytest.fixture(scope="module")
def keras(ours):
    """Logits, loss and gradients of the Keras model with our weights, by its names."""
    with context.eager_mode():
        model = keras_transformer.build(PARAMS, LENGTH)
        model.set_weights([as_keras(variable.name, ours[-1]) for variable in model.variables])
        with tf.GradientTape() as tape:
            logits = model(FEATURES, training=True)
            loss = keras_transformer.loss(PARAMS["label_smoothing"])(FEATURES["target"], logits)
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = {
            variable.name: tf.convert_to_tensor(gradient).numpy()
            for variable, gradient in zip(model.trainable_variables, gradients)
        }
        return logits.numpy(), float(loss), gradients


def test_logits(ours, keras):
    numerics.assert_close(ours[0], keras[0], **FORWARD)


def test_loss(ours, keras):
    numerics.assert_close(ours[1], keras[1], **FORWARD)


def test_every_gradient(ours, keras):
    gradients = keras[2]
    assert sum(g.size for g in gradients.values()) == sum(g.size for g in ours[2].values())
    for name, gradient in gradients.items():
        expected = as_keras(name, ours[2])
        # The softmax cancels the bias of a key, which is added to all scores of a query: its
        # gradient is a sum of cancelling terms, as large as those of the kernel.
        like = gradients[name.replace("key/bias", "key/kernel")]
        magnitude = np.abs(like).max()
        numerics.assert_close(gradient, expected, **BACKWARD, magnitude=magnitude, name=name)
