"""A small BERT: a masked token loss and a sentence loss (arXiv:1810.04805, section 3.1)."""

import tensorflow as tf

from models.layers import attention, normalization
from models.model import Loss, Model, ModelError
from tests.contract.masked_lm.data import MASK, PADDING, VOCAB_SIZE


def default_params():
    return {"hidden_size": 16, "num_heads": 2, "attention_dropout": 0.0, "sentence_scale": 0.5}


def check_params(params):
    if params["hidden_size"] % params["num_heads"]:
        raise ModelError(f"num_heads={params['num_heads']} must divide hidden_size")


def inference(features, params, training):
    """Returns the logits of each token and of each sentence.

    Args:
      features: `{"tokens": int32 [batch, length]}`.
      params: hyperparameters.
      training: bool.

    Returns:
      `{"tokens": {"logits": [batch, length, vocab_size]}, "sentence": {"logits": [batch]}}`.
    """
    tokens, hidden_size = features["tokens"], params["hidden_size"]
    # The name of a variable may be that of a feature.
    embeddings = tf.compat.v1.get_variable("tokens", [VOCAB_SIZE, hidden_size])
    positions = tf.compat.v1.get_variable("positions", [tokens.shape[1], hidden_size])
    x = tf.gather(embeddings, tokens) + positions
    bias = tf.where(tf.equal(tokens, PADDING), -1e9, 0.0)[:, tf.newaxis, tf.newaxis]
    with tf.compat.v1.variable_scope("attention"):
        x = normalization.layer_norm(x + attention.self_attention(x, bias, params, training))
    x += tf.compat.v1.layers.dense(x, hidden_size, tf.tanh, name="hidden")
    x = normalization.layer_norm(x, "norm")
    logits = tf.tensordot(x, embeddings, [[2], [1]])
    sentence = tf.compat.v1.layers.dense(x[:, 0], 1, name="sentence")[:, 0]
    return {"tokens": {"logits": logits}, "sentence": {"logits": sentence}}


def losses(features, labels, outputs, params):
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels["tokens"], logits=outputs["tokens"]["logits"]
    )
    is_masked = tf.cast(tf.equal(features["tokens"], MASK), tf.float32)
    num_masked = tf.reduce_sum(is_masked, axis=1)
    token_losses = tf.math.divide_no_nan(tf.reduce_sum(each * is_masked, axis=1), num_masked)
    sentence_losses = tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.cast(labels["is_ascending"], tf.float32), logits=outputs["sentence"]["logits"]
    )
    return {
        "token": Loss(token_losses, num_masked),
        "sentence": Loss(sentence_losses, scale=params["sentence_scale"]),
    }


def eval_outputs(features, labels, outputs, params):
    predicted = predictions(features, outputs, params)
    return {
        "classes": predicted["tokens"],
        "is_ascending": predicted["is_ascending"],
        "is_masked": tf.cast(tf.equal(features["tokens"], MASK), tf.float32),
    }


def metrics(labels, outputs, weights, params):
    token_weights = outputs["is_masked"] * weights[:, tf.newaxis]
    return {
        "token_accuracy": tf.compat.v1.metrics.accuracy(
            labels["tokens"], outputs["classes"], token_weights
        ),
        "sentence_accuracy": tf.compat.v1.metrics.accuracy(
            labels["is_ascending"], outputs["is_ascending"], weights
        ),
    }


def predictions(features, outputs, params):
    return {
        "tokens": tf.argmax(outputs["tokens"]["logits"], axis=2, output_type=tf.int32),
        "token_probabilities": tf.nn.softmax(outputs["tokens"]["logits"]),
        "is_ascending": tf.cast(outputs["sentence"]["logits"] > 0, tf.int32),
        "ascending_probability": tf.sigmoid(outputs["sentence"]["logits"]),
    }


MODEL = Model(
    "masked_lm",
    default_params,
    inference,
    losses,
    predictions,
    metrics,
    eval_outputs,
    check_params=check_params,
    features=("tokens",),
)
