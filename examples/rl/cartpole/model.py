"""Q-network of DQN (Mnih et al. 2015, Nature 518, 529-533): a value for each action.

observation  float32 [batch, size]
action       label, int32 [batch]
target       label, float32 [batch]: n-step return, bootstrapped by the target network

The target network is not here: its values are in the labels; see `task`.
"""

from __future__ import annotations

import tensorflow as tf

from common.params import Ints
from models.model import Loss, Model, ModelError


def default_params():
    """Returns the hyperparameters."""
    return {
        "num_actions": 2,
        "hidden_units": Ints([128, 128]),
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    for name in ("num_actions", "hidden_units"):
        values = params[name] if name == "hidden_units" else [params[name]]
        if not all(value > 0 for value in values):
            raise ModelError(f"{name}={params[name]} must be above 0")


def inference(features, params, training):
    """Returns `{"q_values": float32 [batch, num_actions]}`."""
    del training
    x = features["observation"]
    for i, units in enumerate(params["hidden_units"]):
        x = tf.compat.v1.layers.dense(x, units, tf.nn.relu, name=f"dense_{i}")
    return {"q_values": tf.compat.v1.layers.dense(x, params["num_actions"], name="q_values")}


def _errors(labels, outputs):
    """Returns the temporal-difference errors, float32 `[batch]`."""
    q_values = outputs["q_values"]
    is_taken = tf.one_hot(labels["action"], q_values.shape[-1])
    return labels["target"] - tf.reduce_sum(q_values * is_taken, axis=1)


def losses(features, labels, outputs, params):
    """Huber loss of the temporal-difference error."""
    del features, params
    error = tf.abs(_errors(labels, outputs))
    return {"huber": Loss(tf.where(error < 1, tf.square(error) / 2, error - 0.5))}


def metrics(labels, outputs, weights, params):
    """Mean absolute temporal-difference error."""
    del params
    error = tf.abs(_errors(labels, outputs))
    return {"mean_td_error": tf.compat.v1.metrics.mean(error, weights)}


def predictions(features, outputs, params):
    """Returns `{"q_values": float32 [batch, num_actions]}`."""
    del features, params
    return {"q_values": outputs["q_values"]}


MODEL = Model(
    "q_network",
    default_params,
    inference,
    losses,
    predictions,
    metrics,
    check_params=check_params,
    features=("observation",),
    labels=("action", "target"),
)
