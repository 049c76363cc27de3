"""A regression on the mean of the embeddings of some of 200,000 items."""

import tensorflow as tf

from models.layers import embedding_table
from models.layers.embedding_table import EmbeddingTable, lookup
from models.model import Loss, Model


def default_params():
    sizes = {"num_items": 0, "embedding_size": 8, "history": 7}
    return {**sizes, **embedding_table.default_params()}


def embedding_tables(params):
    ids = {"items": lambda features: features["user"]["items"]}
    return [EmbeddingTable("items", params["num_items"], params["embedding_size"], ids, "mean")]


def inference(features, params, training):
    """Returns `{"rating": float32 [batch]}`.

    Args:
      features: `{"user": {"items": int32 [batch, history]}, "day": float32 [batch]}`.
      params: hyperparameters.
      training: bool.
    """
    (table,) = embedding_tables(params)
    x = lookup(table, features)
    x = tf.concat([x, features["day"][:, tf.newaxis]], axis=1)
    return {"rating": tf.compat.v1.layers.dense(x, 1, name="rating")[:, 0]}


def losses(features, labels, outputs, params):
    return {"squared_error": Loss(tf.square(outputs["rating"] - labels))}


def metrics(labels, outputs, weights, params):
    error = tf.compat.v1.metrics.mean_absolute_error(labels, outputs["rating"], weights)
    return {"novelty": error}  # a name that does not tell whether lower or higher is better


def predictions(features, outputs, params):
    return outputs


MODEL = Model(
    "embedding",
    default_params,
    inference,
    losses,
    predictions,
    metrics,
    metric_directions={"novelty": "min"},
    embedding_tables=embedding_tables,
    features=("user/items", "day"),
    dataset_properties=("num_items",),
)
