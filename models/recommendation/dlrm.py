"""DLRM, a deep learning recommendation model (Naumov et al. 2019, arXiv:1906.00091).

A bottom MLP turns the numbers of an example into a vector as wide as the embeddings of its
categories. The dot products of all pairs of these vectors, and the vector of the numbers, are the
inputs of a top MLP, which computes the logit of a click.

    numbers     float32 [batch, numbers]
    categories  int32 [batch, categories], a row of the table of each category; -1 for none
    label       int32 [batch], 1 for a click

Gradients of the embeddings are sparse; `lazy_embeddings` keeps the updates sparse too.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from common.params import Ints
from models.layers import device, embedding_table
from models.layers.embedding_table import EmbeddingTable, lookup
from models.model import Loss, Model, ModelError, check_not_negative, check_positive
from models.recommendation.click_metrics import ClickMetrics

# A TPU selects the pairs of so many vectors by products, whose cost and memory grow with their
# number ** 4: a step takes 12.9 instead of 20.7 ms with 64 vectors, 30.2 instead of 32.8 with 100.
_MOST_BY_PRODUCTS = 64


def default_params():
    """Returns the hyperparameters."""
    return {
        "table_rows": Ints(),  # rows of the table of each category
        "embedding_size": 16,  # width of the embeddings
        "bottom_units": Ints([512, 256, 64]),  # layers before that of `embedding_size` units
        "top_units": Ints([512, 256]),  # layers before the logit
        "precision": "float32",
        **embedding_table.default_params(),
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    check_not_negative(params, "tpu_embedding_rows")
    check_positive(params, "embedding_size", "table_rows", "bottom_units", "top_units")
    if not params["table_rows"]:
        raise ModelError("table_rows=[] has no category: DLRM needs one at least")


def embedding_tables(params):
    """Returns the table of each category."""
    tables = []
    for i, rows in enumerate(params["table_rows"]):
        bound = rows**-0.5
        tables.append(
            EmbeddingTable(
                f"embeddings/table_{i}",
                rows,
                params["embedding_size"],
                {f"embeddings/table_{i}": lambda features, i=i: features["categories"][:, i]},
                initializer=tf.compat.v1.random_uniform_initializer(-bound, bound),
            )
        )
    return tables


def inference(features, params, training):
    """Computes the logit of a click.

    Args:
      features: `{"numbers": float32 [batch, numbers], "categories": int32 [batch, categories]}`. A
        category of -1 has the embedding 0.
      params: see `default_params`.
      training: unused; the model has no dropout.

    Returns:
      `{"logits": [batch]}` of `params["precision"]`.
    """
    del training
    units = (*params["bottom_units"], params["embedding_size"])
    x = _mlp(tf.cast(features["numbers"], params["precision"]), units, "bottom")
    embeddings = [lookup(table, features) for table in embedding_tables(params)]
    vectors = [x, *(tf.cast(vector, params["precision"]) for vector in embeddings)]
    # A TPU stacks in another layout than it multiplies, and concatenates in the right one.
    shape = [-1, len(vectors), params["embedding_size"]]
    x = tf.concat([x, interact(tf.reshape(tf.concat(vectors, axis=1), shape))], axis=1)
    x = _mlp(x, params["top_units"], "top")
    return {"logits": _dense(x, 1, None, "logits")[:, 0]}


def interact(vectors):
    """Returns the dot products of all pairs of vectors.

    Args:
      vectors: `[batch, n, width]`.

    Returns:
      `[batch, n * (n - 1) / 2]`: the pairs (1, 0), (2, 0), (2, 1), (3, 0), ...
    """
    size = vectors.shape.as_list()[1]
    selects_by_products = device.is_tpu() and size <= _MOST_BY_PRODUCTS
    lower, symmetric = _by_products(size) if selects_by_products else _by_slices(size)

    # Both factors are the same matrix, so one product computes its gradient.
    @tf.custom_gradient
    def dot_products(vectors):
        def gradient(upstream):
            return tf.matmul(symmetric(upstream), vectors)

        return lower(tf.matmul(vectors, vectors, transpose_b=True)), gradient

    return dot_products(vectors)


def _by_slices(size):
    """Returns (lower, symmetric).

    `lower` returns the elements of a matrix `[batch, size, size]` below its diagonal, `[batch, size
    * (size - 1) / 2]`. `symmetric` returns a symmetric matrix of them, with zeros on its diagonal.
    """
    counts = range(1, size)  # of the elements (i, 0), ..., (i, i - 1)

    def lower(matrix):
        return tf.concat([matrix[:, i, :i] for i in counts], axis=1)

    def symmetric(elements):
        rows = [tf.zeros_like(elements[:, :1]), *tf.split(elements, counts, axis=1)]
        rows = [tf.pad(row, [[0, 0], [0, size - row.shape.as_list()[1]]]) for row in rows]
        triangle = tf.reshape(tf.concat(rows, axis=1), [-1, size, size])
        return triangle + tf.linalg.matrix_transpose(triangle)

    return lower, symmetric


def _by_products(size):
    """Returns what `_by_slices` does, for a TPU: products with zeros and ones, not 26 copies."""
    places = np.full([size, size], -1)
    rows, columns = np.tril_indices(size, k=-1)
    places[rows, columns] = np.arange(len(rows))
    is_lower = places.ravel()[:, None] == np.arange(len(rows))  # [size * size, elements]
    is_upper = places.T.ravel()[:, None] == np.arange(len(rows))

    def lower(matrix):
        selection = tf.constant(is_lower, matrix.dtype)
        return tf.matmul(tf.reshape(matrix, [-1, size * size]), selection)

    def symmetric(elements):
        selection = tf.constant((is_lower | is_upper).T, elements.dtype)
        return tf.reshape(tf.matmul(elements, selection), [-1, size, size])

    return lower, symmetric


def _mlp(x, all_units, name):
    for i, units in enumerate(all_units):
        x = _dense(x, units, tf.nn.relu, f"{name}/dense_{i}")
    return x


def _dense(x, units, activation, name):
    return tf.compat.v1.layers.dense(
        x,
        units,
        activation,
        kernel_initializer=tf.compat.v1.initializers.glorot_normal(),
        bias_initializer=tf.compat.v1.random_normal_initializer(stddev=units**-0.5),
        name=name,
    )


def losses(features, labels, outputs, params):
    """Binary cross-entropy."""
    del features, params
    targets = tf.cast(labels, tf.float32)
    return {
        "cross_entropy": Loss(tf.nn.sigmoid_cross_entropy_with_logits(targets, outputs["logits"]))
    }


def predictions(features, outputs, params):
    """Returns `{"logits": float32 [batch], "probabilities": ...}`."""
    del features, params
    return {"logits": outputs["logits"], "probabilities": tf.sigmoid(outputs["logits"])}


MODEL = Model(
    "dlrm",
    default_params,
    inference,
    losses,
    predictions,
    host_metrics=lambda *_: [ClickMetrics()],
    embedding_tables=embedding_tables,
    check_params=check_params,
    unused_params=embedding_table.unused_params,
    features=("numbers", "categories"),
    labels=("label",),
    dataset_properties=("table_rows",),
)
