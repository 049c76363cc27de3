"""A regression on embeddings of a user, of a bag of tags and of several items."""

import tensorflow as tf

from models.layers import embedding_table
from models.layers.embedding_table import EmbeddingTable, lookup
from models.model import Loss, Model
from tests.contract.embedding_tables import data


def default_params():
    return {"combiner": "mean", "item_optimizer": "", **embedding_table.default_params()}


def embedding_tables(params):
    users = {"user": lambda features: features["user"]}
    tags = {"tags": lambda features: features["tags"]}
    items = {
        "items": lambda features: features["items"],
        "first": lambda features: features["items"][:, 0],
    }
    return [
        EmbeddingTable("tables/users", data.NUM_USERS, 4, users),
        EmbeddingTable("tables/tags", data.NUM_TAGS, 4, tags, params["combiner"]),
        EmbeddingTable("items", data.NUM_ITEMS, 4, items, optimizer=params["item_optimizer"]),
    ]


def inference(features, params, training):
    """Returns `{"rating": float32 [batch]}`."""
    users, tags, items = embedding_tables(params)
    candidates = lookup(items, features, "items")  # [batch, candidates, 4]
    x = [lookup(users, features), lookup(tags, features), lookup(items, features, "first")]
    x = tf.concat([*x, tf.reduce_sum(tf.square(candidates), axis=1)], axis=1)
    return {"rating": tf.compat.v1.layers.dense(x, 1, name="rating")[:, 0]}


def losses(features, labels, outputs, params):
    return {"squared_error": Loss(tf.square(outputs["rating"] - labels))}


def predictions(features, outputs, params):
    return outputs


MODEL = Model(
    "embedding_tables",
    default_params,
    inference,
    losses,
    predictions,
    embedding_tables=embedding_tables,
    features=("user", "tags", "items"),
)
