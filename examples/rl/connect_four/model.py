"""Policy and value network of AlphaZero (Silver et al. 2018, Science 362, 1140-1144), small.

board    uint8 [batch, rows, columns, 2]: stones of the player to move, and of the other
policy   label, float32 [batch, columns]: shares of the visits of a search
value    label, float32 [batch]: result of the game for the player to move, -1 to 1

Columns and rows are those of the data set.
"""

from __future__ import annotations

import tensorflow as tf

from models.layers import normalization
from models.model import Loss, Model, ModelError


def default_params():
    """Returns the hyperparameters."""
    return {
        "filters": 32,
        "blocks": 3,  # residual blocks of two convolutions
        "value_units": 64,  # hidden layer of the value
        "value_scale": 1.0,  # weight of the value's loss
        "precision": "float32",
        **normalization.default_params(),
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    for name, lowest in (("filters", 1), ("blocks", 0), ("value_units", 1), ("value_scale", 0)):
        if params[name] < lowest:
            raise ModelError(f"{name}={params[name]} must not be below {lowest}")
    normalization.check_params(params)


def inference(features, params, training):
    """Computes the logits of the columns and the value of the position.

    Args:
      features: `{"board": uint8 [batch, rows, columns, 2]}`.
      params: see `default_params`.
      training: True uses batch statistics.

    Returns:
      `{"logits": [batch, columns], "value": [batch]}` of `params["precision"]`; the value is in
      [-1, 1].
    """
    board = features["board"]
    x = tf.cast(board, params["precision"])
    x = tf.nn.relu(_conv(x, params["filters"], 3, params, training, "stem"))
    for i in range(params["blocks"]):
        y = tf.nn.relu(_conv(x, params["filters"], 3, params, training, f"block_{i}/conv_0"))
        y = _conv(y, params["filters"], 3, params, training, f"block_{i}/conv_1")
        x = tf.nn.relu(x + y)
    dense = tf.compat.v1.layers.dense
    policy = tf.nn.relu(_conv(x, 8, 1, params, training, "policy/conv"))
    logits = dense(_flatten(policy), board.shape[2], name="policy/logits")
    value = tf.nn.relu(_conv(x, 4, 1, params, training, "value/conv"))
    value = dense(_flatten(value), params["value_units"], tf.nn.relu, name="value/dense")
    value = tf.tanh(dense(value, 1, name="value/output"))[:, 0]
    return {"logits": logits, "value": value}


def _conv(x, filters, size, params, training, name):
    x = tf.compat.v1.layers.conv2d(x, filters, size, padding="same", use_bias=False, name=name)
    return normalization.batch_norm(x, params, training, f"{name}_norm")


def _flatten(x):
    return tf.reshape(x, [-1, x.shape[1] * x.shape[2] * x.shape[3]])


def losses(features, labels, outputs, params):
    """Cross-entropy of the policy and squared error of the value."""
    del features
    policy = tf.nn.softmax_cross_entropy_with_logits(labels["policy"], outputs["logits"])
    value = tf.square(outputs["value"] - labels["value"])
    return {"policy": Loss(policy), "value": Loss(value, scale=params["value_scale"])}


def metrics(labels, outputs, weights, params):
    """How often policy and search prefer the same column, and the result has the value's sign."""
    del params
    column, searched = (tf.argmax(x, axis=1) for x in (outputs["logits"], labels["policy"]))
    signs = tf.sign(outputs["value"]), tf.sign(labels["value"])
    return {
        "policy_accuracy": tf.compat.v1.metrics.accuracy(searched, column, weights),
        "value_accuracy": tf.compat.v1.metrics.accuracy(signs[1], signs[0], weights),
    }


def predictions(features, outputs, params):
    """Returns `{"logits": float32 [batch, columns], "value": float32 [batch]}`."""
    del features, params
    return {"logits": outputs["logits"], "value": outputs["value"]}


MODEL = Model(
    "policy_value",
    default_params,
    inference,
    losses,
    predictions,
    metrics,
    check_params=check_params,
    features=("board",),
    labels=("policy", "value"),
)
