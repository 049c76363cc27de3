"""A decoder-only language model: trained on next tokens, it continues prompts by sampling."""

import numpy as np
import tensorflow as tf

from models.layers import attention, normalization
from models.model import Loss, Model
from tests.contract.language_model.data import NUM_SPECIAL, PADDING, START, VOCAB_SIZE


def default_params():
    sizes = {"hidden_size": 16, "num_heads": 2, "attention_dropout": 0.0}
    return {**sizes, "temperature": 1.0}


def inference(features, params, training):
    """Returns `{"logits": [batch, length, vocab_size]}` of each token, given those before it.

    Args:
      features: `{"tokens": int32 [batch, length], "seed": int32 [batch]}`.
      params: hyperparameters.
      training: bool.
    """
    tokens, hidden_size = features["tokens"], params["hidden_size"]
    length = tokens.shape[1]
    with tf.compat.v1.variable_scope("", reuse=tf.compat.v1.AUTO_REUSE):
        embeddings = tf.compat.v1.get_variable("embeddings", [VOCAB_SIZE, hidden_size])
        positions = tf.compat.v1.get_variable("positions", [length, hidden_size])
        inputs = tf.pad(tokens[:, :-1], [[0, 0], [1, 0]], constant_values=START)
        x = tf.gather(embeddings, inputs) + positions
        bias = attention.attention_bias(tf.linalg.band_part(tf.ones([length, length]), -1, 0) > 0)
        with tf.compat.v1.variable_scope("attention"):
            x += attention.self_attention(normalization.layer_norm(x), bias, params, training)
        x += tf.compat.v1.layers.dense(x, hidden_size, tf.tanh, name="hidden")
        x = normalization.layer_norm(x, "norm")
    return {"logits": tf.tensordot(x, embeddings, [[2], [1]])}


def decode(features, params):
    """Continues each sentence: samples a token at each place that has none.

    The random numbers are functions of the seed of the example, an input of the SavedModel.
    """
    given, length = features["tokens"], features["tokens"].shape[1]

    def sample(position, tokens):
        logits = inference({"tokens": tokens}, params, training=False)["logits"][:, position]
        noise = tf.map_fn(
            lambda seed: tf.random.stateless_uniform([VOCAB_SIZE], [seed, position], 1e-6),
            features["seed"],
            fn_output_signature=tf.float32,
        )
        scores = logits / params["temperature"] - tf.math.log(-tf.math.log(noise))  # Gumbel
        is_token = tf.range(VOCAB_SIZE) >= NUM_SPECIAL
        sampled = tf.argmax(tf.where(is_token, scores, -1e9), axis=1, output_type=tf.int32)
        is_missing = tf.equal(given, PADDING) & tf.equal(tf.range(length), position)
        return position + 1, tf.where(is_missing, sampled[:, tf.newaxis], tokens)

    _, tokens = tf.while_loop(lambda position, _: position < length, sample, (0, given))
    return {"tokens": tokens}


def losses(features, labels, outputs, params):
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs["logits"])
    is_token = tf.cast(tf.not_equal(labels, PADDING), tf.float32)
    num_tokens = tf.reduce_sum(is_token, axis=1)
    values = tf.math.divide_no_nan(tf.reduce_sum(each * is_token, axis=1), num_tokens)
    return {"next_token": Loss(values, num_tokens)}


def predictions(features, outputs, params):
    return {"tokens": outputs["tokens"]}


class Fluency:
    """The share of the samples that count up, as the sentences do."""

    names = ("fluency",)
    directions = dict.fromkeys(names, "max")

    def __init__(self):
        self._is_next = []

    def update(self, features, labels, predictions):
        is_sampled = features["tokens"][:, 1:] == PADDING
        self._is_next.append((np.diff(predictions["tokens"]) == 1)[is_sampled])

    def result(self):
        return {"fluency": float(np.concatenate(self._is_next).mean())}


MODEL = Model(
    "language_model",
    default_params,
    inference,
    losses,
    predictions,
    host_metrics=lambda params, pipeline: [Fluency()],
    decode=decode,
    features=("tokens", "seed"),
)
