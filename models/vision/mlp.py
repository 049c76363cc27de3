"""A multi-layer perceptron: flatten, dense layers with ReLU and dropout, logits."""

from __future__ import annotations

import re

import tensorflow as tf

from models.layers.dropout import dropout
from models.model import ModelError, check_fractions
from models.vision import classifier


def default_params():
    """Returns the hyperparameters of `inference` and `classifier.loss`."""
    return {
        **classifier.default_params(),
        "hidden_units": "512",  # units of each hidden layer, e.g. '512 512'
        "dropout": 0.2,  # share of hidden units dropped in training
    }


def check_params(params):
    """Raises `ModelError` for a value that no graph can be built with."""
    classifier.check_params(params)
    check_fractions(params, "dropout")
    units = params["hidden_units"].split()
    # Of ASCII alone: "²" is a digit too. A tensor has fewer than 2**31 columns.
    if not all(re.fullmatch("[0-9]{1,9}", unit) and int(unit) > 0 for unit in units):
        raise ModelError(
            f"hidden_units='{params['hidden_units']}' must be positive numbers separated by "
            "spaces, such as '512 512'"
        )


def inference(features, params, training):
    """Computes class logits of images.

    Args:
      features: `{"image": uint8 or float32 [batch, height, width, channels]}`.
      params: see `default_params`.
      training: whether dropout is on.

    Returns:
      `{"logits": [batch, num_classes]}` of `params["precision"]`.
    """
    x = tf.compat.v1.layers.flatten(classifier.scaled_images(features, params))
    for i, units in enumerate(params["hidden_units"].split()):
        x = tf.compat.v1.layers.dense(x, int(units), tf.nn.relu, name=f"dense_{i}")
        x = dropout(x, params["dropout"], training)
    return {"logits": tf.compat.v1.layers.dense(x, params["num_classes"], name="logits")}


MODEL = classifier.model("mlp", default_params, inference, check_params)
