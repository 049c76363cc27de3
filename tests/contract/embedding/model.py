"""A regression on the mean of the embeddings of some of 200,000 items."""

import tensorflow as tf

from models.model import Loss, Model


def default_params():
    return {"num_items": 0, "embedding_size": 8, "history": 7}


def inference(features, params, training):
    """Returns `{"rating": float32 [batch]}`.

    Args:
      features: `{"user": {"items": int32 [batch, history]}, "day": float32 [batch]}`.
      params: hyperparameters.
      training: bool.
    """
    table = tf.compat.v1.get_variable("items", [params["num_items"], params["embedding_size"]])
    x = tf.reduce_mean(tf.nn.embedding_lookup(table, features["user"]["items"]), axis=1)
    x = tf.concat([x, features["day"][:, tf.newaxis]], axis=1)
    return {"rating": tf.compat.v1.layers.dense(x, 1, name="rating")[:, 0]}


def losses(features, labels, outputs, params):
    return {"squared_error": Loss(tf.square(outputs["rating"] - labels))}


def predictions(features, outputs, params):
    return outputs


MODEL = Model(
    "embedding",
    default_params,
    inference,
    losses,
    predictions,
    features=("user/items", "day"),
    dataset_properties=("num_items",),
)
