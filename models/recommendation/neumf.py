"""NeuMF, neural collaborative filtering (He et al. 2017, arXiv:1708.05031).

Two networks with separate embeddings of users and items: generalized matrix factorization (GMF),
the product of two embeddings, and a multi-layer perceptron (MLP) on two others. One dense layer
computes the logit of an interaction from the outputs of both.

    user   int32 [batch]
    items  int32 [batch, candidates]; -1 for none. The candidates are independent of each other.

Gradients of the embeddings are sparse; `lazy_embeddings` keeps the updates sparse too. So the
L2 regularization is `embedding_l2`, of the embeddings of a batch, and not `weight_decay`.
"""

from __future__ import annotations

import functools

import tensorflow as tf

from common.constants import NUM_NEGATIVES
from common.params import Ints
from models.layers import embedding_table
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

_STDDEV = 0.05  # of the initial embeddings


def default_params():
    """Returns the hyperparameters."""
    return {
        "num_users": 0,
        "num_items": 0,
        "gmf_size": 32,  # width of the embeddings of GMF; 0: no GMF
        "mlp_size": 32,  # width of the embeddings of the MLP; 0: no MLP
        "hidden_units": Ints([64, 32, 16]),  # units of each layer of the MLP
        "dropout": 0.0,  # dropout rate of the inputs of the layers of the MLP
        "embedding_dropout": 0.0,  # dropout rate of the product of GMF
        "embedding_l2": 0.0,  # L2 regularization of the embeddings that a batch uses
        "num_negatives": NUM_NEGATIVES,  # of each training row, drawn by the input pipeline
        "ranking_k": 10,  # k of hr_at_k and ndcg_at_k
        "rank_all_items": False,  # evaluation ranks against all items, not against sampled ones
        "precision": "float32",
        **embedding_table.default_params(),
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    check_fractions(params, "dropout", "embedding_dropout")
    check_positive(params, "num_users", "num_items", "num_negatives", "ranking_k")
    check_not_negative(params, "gmf_size", "mlp_size", "embedding_l2", "tpu_embedding_rows")
    if not params["gmf_size"] and not params["mlp_size"]:
        raise ModelError("gmf_size=0 and mlp_size=0 leave no network. Set one of them")
    check_positive(params, "hidden_units")


def unused_params(params):
    """Returns the hyperparameters of a network that is left out; see `Model`."""
    unused = embedding_table.unused_params(params)
    if not params["gmf_size"]:
        unused["embedding_dropout"] = "gmf_size"
    if not params["hidden_units"]:
        unused["dropout"] = "hidden_units"
    if not params["mlp_size"]:
        unused.update(dict.fromkeys(("hidden_units", "dropout"), "mlp_size"))
    return unused


def embedding_tables(params):
    """Returns the tables of users and of items, of GMF and then of the MLP."""
    initializer = tf.compat.v1.random_normal_initializer(stddev=_STDDEV)
    ids = {
        "users": lambda features: features["user"],
        "items": lambda features: features["items"],
    }
    return [
        EmbeddingTable(
            f"{network}/{kind}",
            params[f"num_{kind}"],
            params[f"{network}_size"],
            {f"{network}/{kind}": ids[kind]},
            initializer=initializer,
        )
        for network in ("gmf", "mlp")
        if params[f"{network}_size"]
        for kind in ids
    ]


def inference(features, params, training):
    """Computes the logit of an interaction of a user with each candidate.

    Args:
      features: `{"user": int32 [batch], "items": int32 [batch, candidates]}`. A user or an item of
        -1 has embeddings of 0; `predictions` masks its result. The items may be `[1, candidates]`,
        the same for all users.
      params: see `default_params`.
      training: True turns dropout on.

    Returns:
      `{"logits": [batch, candidates]}` of `params["precision"]` and, in training, `"l2"`, float32
      `[batch]`: half of the squared norm of the embeddings of the user and of the mean candidate.
    """
    tables = [lookup(table, features) for table in embedding_tables(params)]
    networks = iter(zip(tables[::2], tables[1::2]))
    parts = []
    if params["gmf_size"]:
        of_user, of_items = next(networks)
        product = of_user[:, tf.newaxis] * of_items
        parts.append(dropout(product, params["embedding_dropout"], training))
    if params["mlp_size"]:
        of_user, of_items = next(networks)
        of_user = of_user[:, tf.newaxis]
        if training and params["dropout"]:  # different inputs for each candidate
            of_user = tf.broadcast_to(of_user, tf.shape(of_items))
        parts += _mlp([of_user, of_items], params, training)
    with tf.compat.v1.variable_scope("logits"):
        logits = _dense_of_parts(parts, 1, params, "dense")[..., 0]
    if not training:
        return {"logits": logits}
    squares = [tf.reduce_sum(tf.square(table), axis=-1) for table in tables]
    squares = [x if x.shape.rank == 1 else tf.reduce_mean(x, axis=1) for x in squares]
    return {"logits": logits, "l2": tf.add_n(squares) / 2}


def _mlp(parts, params, training):
    """Returns the output of the MLP on both embeddings, `[[batch, candidates, units]]`."""
    shape = None
    for i, units in enumerate(params["hidden_units"]):
        parts = [dropout(part, params["dropout"], training) for part in parts]
        he_normal = tf.compat.v1.initializers.he_normal()
        x = tf.nn.relu(_dense_of_parts(parts, units, params, f"mlp/dense_{i}", he_normal))
        if shape is None:
            shape = tf.shape(x)[:2]
        # In two dimensions a CPU computes product, bias and ReLU of the next layers at once.
        parts = [tf.reshape(x, [-1, units])]
    if shape is None:
        return parts
    return [tf.reshape(parts[0], tf.concat([shape, [units]], axis=0))]


def _dense_of_parts(parts, units, params, name, kernel_initializer=None):
    """A dense layer on the concatenation of the parts, which is not computed.

    What all candidates of a user, or all users of a candidate, have in common is multiplied once.

    Args:
      parts: inputs, `[batch or 1, candidates or 1, width]`, or one of `[n, width]`.
      units: number of outputs.
      params: `precision` is used.
      name: scope of the variables, which are those of `tf.compat.v1.layers.dense`.
      kernel_initializer: of the kernel.

    Returns:
      `[batch, candidates, units]`, or `[n, units]`.
    """
    widths = [part.shape.as_list()[-1] for part in parts]
    with tf.compat.v1.variable_scope(name):
        kernel = tf.compat.v1.get_variable(
            "kernel", [sum(widths), units], params["precision"], kernel_initializer
        )
        bias = tf.compat.v1.get_variable(
            "bias", [units], params["precision"], tf.compat.v1.zeros_initializer()
        )
        kernels = tf.split(kernel, widths)
        products = [
            tf.tensordot(tf.cast(part, params["precision"]), rows, 1)
            for part, rows in zip(parts, kernels)
        ]
        products[0] = tf.nn.bias_add(products[0], bias)
        return functools.reduce(tf.add, products)


def losses(features, labels, outputs, params):
    """Cross-entropy of the interactions, the mean over the candidates, and the L2 of embeddings."""
    is_item = tf.cast(features["items"] >= 0, tf.float32)
    values = tf.nn.sigmoid_cross_entropy_with_logits(labels["interaction"], outputs["logits"])
    # The first candidate always is an item.
    values = tf.reduce_sum(values * is_item, axis=1) / tf.reduce_sum(is_item, axis=1)
    terms = {"cross_entropy": Loss(values)}
    if params["embedding_l2"] and "l2" in outputs:
        terms["l2"] = Loss(outputs["l2"], scale=params["embedding_l2"])
    return terms


def predictions(features, outputs, params):
    """Returns `{"logits": float32 [batch, candidates], "probabilities": ...}`.

    The probability is 0 for an unknown user or item, -1.
    """
    del params
    logits = outputs["logits"]
    is_known = (features["user"] >= 0)[:, tf.newaxis] & (features["items"] >= 0)
    return {"logits": logits, "probabilities": tf.where(is_known, tf.sigmoid(logits), 0.0)}


MODEL = Model(
    "neumf",
    default_params,
    inference,
    losses,
    predictions,
    # Host metrics predict the split, and a TPU needs no other outputs.
    eval_outputs=lambda features, labels, outputs, params: {"logits": outputs["logits"]},
    host_metrics=lambda params, _: [RankingMetrics(params["ranking_k"])],
    embedding_tables=embedding_tables,
    check_params=check_params,
    unused_params=unused_params,
    features=("user", "items"),
    dataset_properties=("num_users", "num_items"),
)
