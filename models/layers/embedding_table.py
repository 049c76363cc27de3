"""Embedding tables: declared once by a model, looked up in the form that the device needs.

    ITEMS = EmbeddingTable("items", rows, width, {"items": lambda features: features["items"]})

`Model.embedding_tables` returns the tables, and the inference function calls `lookup`. A table is

- a sparse variable on a CPU or GPU: its gradients are `tf.IndexedSlices`, and in a cluster with
  parameter servers it is partitioned over them,
- a TPU embedding, if it has at least `tpu_embedding_rows` rows, while a TPU trains,
- a dense variable on a TPU otherwise,
- a gather in a SavedModel.

Checkpoints hold it under the same name and with the same shape, and so its slots.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

COMBINERS = (None, "sum", "mean", "sqrtn")
# A tf.distribute strategy builds each replica in a thread, all in one graph.
_THREAD = threading.local()


def default_params():
    """Returns the hyperparameters of a model with embedding tables."""
    return {
        # On a TPU tables of at least so many rows are TPU embeddings, which are sharded over the
        # hosts; smaller ones are variables of each core. 0: all are variables.
        "tpu_embedding_rows": 0,
        # TPU embeddings are looked up while the TPU computes the step before: faster, but a lookup
        # misses the update of that step.
        "tpu_embedding_pipelining": False,
    }


def unused_params(params):
    """Returns the hyperparameters of TPU embeddings if there are none; see `Model`."""
    return (
        {} if params["tpu_embedding_rows"] else {"tpu_embedding_pipelining": "tpu_embedding_rows"}
    )


@dataclasses.dataclass(frozen=True)
class EmbeddingTable:
    """An embedding table, float32 `[rows, width]`.

    Attributes:
      name: name of its variable.
      rows: number of ids.
      width: number of columns.
      lookups: `{name: features -> ids}`, unique names over all tables of a model. Ids are int32
        `[batch]` or `[batch, k]` with static k, in [0, rows); -1 for none.
      combiner: "sum", "mean" or "sqrtn" of the k vectors of an example, a bag, which may be empty.
        None: one vector per id.
      optimizer: optimizer of the table, such as "adagrad"; "": that of the other variables.
      initializer: of the values; default: normal with standard deviation 1 / sqrt(width).
    """

    name: str
    rows: int
    width: int
    lookups: Mapping[str, Callable[[dict], Any]]
    combiner: str | None = None
    optimizer: str = ""
    initializer: Any = None

    def __post_init__(self):
        """Checks the combiner."""
        if self.combiner not in COMBINERS:
            raise ValueError(f"{self.name}: combiner {self.combiner!r} must be one of {COMBINERS}")

    def make_initializer(self):
        """Returns the initializer."""
        default = tf.compat.v1.random_normal_initializer(stddev=self.width**-0.5)
        return self.initializer or default


def lookup(table: EmbeddingTable, features: dict, name: str = "") -> tf.Tensor:
    """Looks up the ids of an example; creates the variable of the table unless it exists.

    Args:
      table: the table.
      features: features of the model, tensors `[batch, ...]`.
      name: one of `table.lookups`; may be left out if there is only one.

    Returns:
      Float32 `[batch, width]` for ids `[batch]` and with a combiner, else `[batch, k, width]`. The
      vector of a missing id and the sum of an empty bag are 0.
    """
    if not name:
        (name,) = table.lookups
    activations = getattr(_THREAD, "activations", None) or {}
    if name in activations:
        return activations[name]
    ids = table.lookups[name](features)
    with tf.compat.v1.variable_scope(
        tf.compat.v1.get_variable_scope(), reuse=tf.compat.v1.AUTO_REUSE
    ):
        variable = tf.compat.v1.get_variable(
            table.name,
            [table.rows, table.width],
            initializer=table.make_initializer(),
            partitioner=getattr(_THREAD, "partitioner", None),
        )
    is_id = ids >= 0
    # A missing id reads a row that another one reads: a lazy optimizer updates no row more.
    ids = tf.where(is_id, ids, tf.maximum(tf.reduce_max(ids), 0))
    vectors = tf.compat.v1.nn.embedding_lookup(variable, ids, partition_strategy="div")
    weights = tf.cast(is_id, tf.float32)
    vectors *= weights[..., tf.newaxis]
    if table.combiner is None or ids.shape.rank == 1:
        return vectors
    total = tf.reduce_sum(vectors, axis=1)
    if table.combiner == "sum":
        return total
    count = tf.maximum(tf.reduce_sum(weights, axis=1, keepdims=True), 1.0)
    return total / (count if table.combiner == "mean" else tf.sqrt(count))


@contextlib.contextmanager
def scope(activations: Mapping[str, tf.Tensor] | None = None, partitioner: Any = None):
    """Sets how `lookup` works inside the `with`; None keeps what is set outside.

    Args:
      activations: `{name of a lookup: vectors}` of TPU embeddings, which it returns. Lookups with
        other names read variables.
      partitioner: of the variables that it creates, such as
        `tf.compat.v1.fixed_size_partitioner(2)`.
    """
    before = dict(vars(_THREAD))
    values = {"activations": activations, "partitioner": partitioner}
    vars(_THREAD).update({name: value for name, value in values.items() if value is not None})
    try:
        yield
    finally:
        vars(_THREAD).clear()
        vars(_THREAD).update(before)
