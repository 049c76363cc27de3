"""A two-tower retrieval model (Yi et al. 2019, doi:10.1145/3298689.3346996).

One tower turns a user into a unit vector, the other an item. The logit of both is their cosine
divided by a temperature, so the items of a user are found by a search for the nearest vectors.
Training is a softmax over the items of the global batch, the in-batch negatives:

    user                  int32 [batch]
    items                 int32 [batch, candidates]; -1 for none. Training has one, the positive
    sampling_probability  float32 [batch], share of the training rows with this item

The logQ correction subtracts the logarithm of the probability that an item is in a batch from its
logit: without it popular items are negatives too often, and their logits too low.

Every replica takes the softmax over the items of all replicas, so the loss does not depend on their
number. With gradient accumulation the negatives are those of a micro-batch.
"""

from __future__ import annotations

import tensorflow as tf

from common.params import Ints
from models.layers import embedding_table, in_batch_softmax
from models.layers.dropout import dropout
from models.layers.embedding_table import EmbeddingTable, lookup
from models.model import (
    Loss,
    Model,
    ModelError,
    check_fractions,
    check_not_negative,
    check_positive,
)
from models.recommendation.ranking_metrics import RankingMetrics

_MASKED = -1e9  # logit of a column that is no candidate


def default_params():
    """Returns the hyperparameters."""
    return {
        "num_users": 0,
        "num_items": 0,
        "embedding_size": 64,  # width of the embeddings of users and of items
        "tower_units": Ints([64, 32]),  # layers of each tower, the last one linear; []: none
        "dropout": 0.0,  # dropout rate of the inputs of the layers
        "embedding_l2": 0.0,  # L2 regularization of the embeddings that a batch uses
        "temperature": 0.1,  # divides the cosines
        "logq_correction": True,  # corrects for the popularity of in-batch negatives
        "num_negatives": 0,  # the input pipeline draws none
        "ranking_k": 10,  # k of hr_at_k and ndcg_at_k
        "rank_all_items": False,  # evaluation ranks against all items, not against sampled ones
        "precision": "float32",
        **embedding_table.default_params(),
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    check_fractions(params, "dropout")
    check_positive(params, "num_users", "num_items", "embedding_size", "temperature", "ranking_k")
    check_not_negative(params, "embedding_l2", "tpu_embedding_rows")
    check_positive(params, "tower_units")
    if params["num_negatives"]:
        raise ModelError(
            f"num_negatives={params['num_negatives']}: the negatives of two_tower are the other "
            "items of the batch. Remove it, and set --train_batch_size"
        )


def unused_params(params):
    """Returns the hyperparameters of layers that the towers do not have; see `Model`."""
    unused = embedding_table.unused_params(params)
    return unused if params["tower_units"] else {**unused, "dropout": "tower_units"}


def embedding_tables(params):
    """Returns the tables of users and of items."""
    ids = {
        "users": lambda features: features["user"],
        "items": lambda features: features["items"],
    }
    return [
        EmbeddingTable(name, params[f"num_{name}"], params["embedding_size"], {name: find})
        for name, find in ids.items()
    ]


def inference(features, params, training):
    """Computes the logits of the candidates, in training of the items of the global batch.

    Args:
      features: see the module. The items may be `[1, candidates]`, the same for all users.
      params: see `default_params`.
      training: True selects in-batch negatives and turns dropout on.

    Returns:
      `{"logits": float32 [batch, candidates]}`. In training `[batch, global batch]`, with "column",
      int32 `[batch]`, the column of the positive, and "l2", float32 `[batch]`: half of the squared
      norm of both embeddings.
    """
    of_user, of_items = (lookup(table, features) for table in embedding_tables(params))
    user = _tower(of_user, params, training, "user")  # [batch, width]
    items = _tower(of_items, params, training, "item")  # [batch, candidates, width]
    if not training:
        logits = tf.matmul(items, user[..., tf.newaxis])[..., 0] / params["temperature"]
        return {"logits": logits}
    logits, column = _in_batch_logits(user, items[:, 0], features, params)
    squares = tf.reduce_sum(of_user**2, axis=-1) + tf.reduce_sum(of_items[:, 0] ** 2, axis=-1)
    return {"logits": logits, "column": column, "l2": squares / 2}


def _tower(x, params, training, name):
    """Returns unit vectors, float32, of the width of the last layer."""
    units = params["tower_units"]
    x = tf.cast(x, params["precision"])
    for i, size in enumerate(units):
        x = dropout(x, params["dropout"], training)
        activation = tf.nn.relu if i < len(units) - 1 else None
        x = tf.compat.v1.layers.dense(x, size, activation, name=f"{name}/dense_{i}")
    # The embedding of a missing id is 0, and stays so without layers.
    return tf.math.l2_normalize(tf.cast(x, tf.float32), axis=-1)


def _in_batch_logits(user, item, features, params):
    """Returns logits, float32 `[batch, global batch]`, and the columns of the positives."""
    correction = None
    if params["logq_correction"]:
        if "sampling_probability" not in features:
            raise ModelError(
                "logq_correction needs the feature 'sampling_probability', which the input "
                "pipeline lacks. Add it, or set --params=logq_correction=false"
            )
        correction = tf.math.log(features["sampling_probability"])
    return in_batch_softmax.in_batch_logits(
        user, item, features["items"][:, 0], params["temperature"], correction
    )


def losses(features, labels, outputs, params):
    """Softmax cross-entropy of the positive, and the L2 of embeddings.

    In training over the items of the global batch, in an evaluation over the candidates.
    """
    del labels
    if "column" not in outputs:
        logits = tf.where(features["items"] >= 0, outputs["logits"], _MASKED)
        return {"cross_entropy": Loss(-tf.nn.log_softmax(logits)[:, 0])}
    values = tf.nn.sparse_softmax_cross_entropy_with_logits(outputs["column"], outputs["logits"])
    terms = {"cross_entropy": Loss(values)}
    if params["embedding_l2"]:
        terms["l2"] = Loss(outputs["l2"], scale=params["embedding_l2"])
    return terms


def predictions(features, outputs, params):
    """Returns `{"logits": float32 [batch, candidates], "scores": ...}`.

    A score is (1 + cosine) / 2, in [0, 1]; 0 for an unknown user or item, -1.
    """
    logits = outputs["logits"]
    is_known = (features["user"] >= 0)[:, tf.newaxis] & (features["items"] >= 0)
    scores = (1 + logits * params["temperature"]) / 2
    return {"logits": logits, "scores": tf.where(is_known, scores, tf.zeros_like(scores))}


MODEL = Model(
    "two_tower",
    default_params,
    inference,
    losses,
    predictions,
    # Host metrics predict the split, and a TPU needs no other outputs.
    eval_outputs=lambda features, labels, outputs, params: {"logits": outputs["logits"]},
    host_metrics=lambda params, _: [RankingMetrics(params["ranking_k"], has_log_loss=False)],
    embedding_tables=embedding_tables,
    check_params=check_params,
    unused_params=unused_params,
    features=("user", "items"),
    dataset_properties=("num_users", "num_items"),
)
