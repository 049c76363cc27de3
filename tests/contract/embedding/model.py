"""A regression on the mean of the embeddings of some of 200,000 items."""

import tensorflow as tf

from models.model import Loss, Model
from tests.contract.embedding.data import NUM_ITEMS


def default_params():
    return {"embedding_size": 8}


def inference(features, params, training):
    """Returns `{"rating": float32 [batch]}` of `{"items": int32 [batch, history]}`."""
    table = tf.compat.v1.get_variable("items", [NUM_ITEMS, params["embedding_size"]])
    x = tf.reduce_mean(tf.nn.embedding_lookup(table, features["items"]), axis=1)
    return {"rating": tf.compat.v1.layers.dense(x, 1, name="rating")[:, 0]}


def losses(features, labels, outputs, params):
    return {"squared_error": Loss(tf.square(outputs["rating"] - labels))}


def predictions(features, outputs, params):
    return outputs


MODEL = Model("embedding", default_params, inference, losses, predictions, features=("items",))
