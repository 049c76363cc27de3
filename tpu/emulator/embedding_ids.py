"""Ids of TPU embeddings: the operations that enqueue them go to a queue per core.

Dense, sparse and ragged ids share a format: samples, ids and weights of each feature, as
`embedding_tables.EmbeddingTables.receive` takes them.
"""

from __future__ import annotations

import weakref

import tensorflow as tf
from tensorflow.python.ops import gen_data_flow_ops
from tensorflow.python.tpu.ops import tpu_ops

from tpu.emulator import host_io
from tpu.emulator.embedding_tables import EmbeddingTables

DTYPES = (tf.int64, tf.int64, tf.float32)  # samples, ids and weights of a feature

_tables = weakref.WeakKeyDictionary()  # EmbeddingTables of a graph


def tables() -> EmbeddingTables:
    """Returns the TPU embeddings of the default graph."""
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    return _tables.setdefault(graph, EmbeddingTables())


def replacements() -> list:
    """Returns the functions to patch, as (owner, name, replacement)."""
    return [
        (tpu_ops, "enqueue_tpu_embedding_arbitrary_tensor_batch", _enqueue_arbitrary),
        (tpu_ops, "enqueue_tpu_embedding_integer_batch", _enqueue_integers),
        (tpu_ops, "enqueue_tpu_embedding_ragged_tensor_batch", _enqueue_ragged),
        (tpu_ops, "enqueue_tpu_embedding_sparse_batch", _enqueue_sparse),
        (tpu_ops, "enqueue_tpu_embedding_sparse_tensor_batch", _enqueue_sparse_tensors),
    ]


def queue_name(core: int) -> str:
    """Returns the name of the queue of a core, counted over all hosts."""
    return f"embedding_{core}"


def _enqueue_arbitrary(
    sample_indices_or_row_splits,
    embedding_indices,
    aggregation_weights,
    device_ordinal=-1,
    combiners=None,
    mode_override=None,
    name=None,
):
    """Enqueues the ids of a core.

    Args:
      sample_indices_or_row_splits: int tensor per feature: [n, 2 or 3] indices of sparse ids,
        [batch + 1] row splits of ragged ids, or empty for dense ids.
      embedding_indices: int tensor per feature: [n], or [batch, k] for dense ids.
      aggregation_weights: [n] float32 per feature, or empty.
      device_ordinal: index of the core, counted over all hosts.
      combiners: "sum", "mean" or "sqrtn" per feature; None for "sum".
      mode_override: None or "unspecified".
      name: name of the operation.
    """
    if mode_override not in (None, "", "unspecified"):
        raise NotImplementedError(
            f"TPU embeddings: mode_override={mode_override!r} is not emulated. Remove it"
        )
    count = len(embedding_indices)
    tables().combiners = list(combiners or ["sum"] * count)
    values = []
    parts = sample_indices_or_row_splits, embedding_indices, aggregation_weights
    if len({len(part) for part in parts}) > 1:
        raise ValueError(
            f"TPU embeddings: sample indices, embedding indices and weights are of "
            f"{', '.join(str(len(part)) for part in parts)} features"
        )
    for feature in zip(*parts):
        values += [tf.cast(value, dtype) for value, dtype in zip(feature, DTYPES)]
    handle = host_io.queue(queue_name(device_ordinal), DTYPES * count)
    return gen_data_flow_ops.queue_enqueue_v2(handle, values, name=name)


def _enqueue_sparse_tensors(
    sample_indices,
    embedding_indices,
    aggregation_weights,
    table_ids,
    device_ordinal=-1,
    max_sequence_lengths=None,
    combiners=None,
    mode_override=None,
    num_features=None,
    name=None,
):
    del max_sequence_lengths  # the configuration has them
    if list(table_ids) != sorted(table_ids) or any(count != 1 for count in num_features or ()):
        raise NotImplementedError(
            f"TPU embeddings: table_ids={list(table_ids)} with num_features={num_features} is not "
            "emulated. Enqueue one feature at a time, in the order of the tables"
        )
    combiners = [combiners[table] for table in table_ids] if combiners else None
    arguments = (device_ordinal, combiners, mode_override, name)
    return _enqueue_arbitrary(sample_indices, embedding_indices, aggregation_weights, *arguments)


def _enqueue_ragged(sample_splits, *args, **kwargs):
    return _enqueue_sparse_tensors(sample_splits, *args, **kwargs)


def _enqueue_sparse(sample_indices, embedding_indices, aggregation_weights, *args, **kwargs):
    """Enqueues one feature per table, with the examples of its ids as `sample_indices`, [n]."""
    examples = [tf.cast(index, tf.int64) for index in sample_indices]
    positions = [tf.stack([index, tf.zeros_like(index)], axis=1) for index in examples]
    return _enqueue_arbitrary(positions, embedding_indices, aggregation_weights, *args, **kwargs)


def _enqueue_integers(batch, device_ordinal, mode_override=None, name=None):
    """Enqueues one feature per table, with one id per example, [batch]."""
    empty = [tf.zeros([0])] * len(batch)
    return _enqueue_arbitrary(
        empty, batch, empty, device_ordinal, mode_override=mode_override, name=name
    )
