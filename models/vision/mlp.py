"""Multi-layer perceptron: flatten, dense layers with ReLU and dropout, logits."""

from __future__ import annotations

import tensorflow as tf

from common.params import Ints
from models.layers.dropout import dropout
from models.model import check_fractions, check_positive
from models.vision import classifier


def default_params():
    """Returns the hyperparameters of `inference` and `classification.losses`."""
    return {
        **classifier.default_params(),
        "hidden_units": Ints([512]),  # units of each hidden layer
        "dropout": 0.2,  # dropout rate of the hidden units
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    classifier.check_params(params)
    check_fractions(params, "dropout")
    check_positive(params, "hidden_units")


def unused_params(params):
    """Returns the hyperparameters of hidden layers if there are none; see `Model`."""
    return {} if params["hidden_units"] else {"dropout": "hidden_units"}


def inference(features, params, training):
    """Computes class logits of images.

    Args:
      features: `{"image": uint8 or float32 [batch, height, width, channels]}`.
      params: see `default_params`.
      training: True turns dropout on.

    Returns:
      `{"logits": [batch, num_classes]}` of `params["precision"]`.
    """
    x = tf.compat.v1.layers.flatten(classifier.scaled_images(features, params))
    for i, units in enumerate(params["hidden_units"]):
        x = tf.compat.v1.layers.dense(x, units, tf.nn.relu, name=f"dense_{i}")
        x = dropout(x, params["dropout"], training)
    return {"logits": tf.compat.v1.layers.dense(x, params["num_classes"], name="logits")}


MODEL = classifier.model("mlp", default_params, inference, check_params, unused_params)
