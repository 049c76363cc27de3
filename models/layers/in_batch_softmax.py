"""Softmax over the candidates of the global batch: each is a negative for all other queries.

The sampled softmax of Yi et al. 2019 (doi:10.1145/3298689.3346996), without its correction the
multiple negatives ranking loss of Henderson et al. 2017 (arXiv:1705.00652).
"""

from __future__ import annotations

import tensorflow as tf

from models.layers import device

_MASKED = -1e9  # logit of a column that is no candidate
_HALF = 2**16  # float32 holds each half of an int32 exactly


def in_batch_logits(queries, candidates, ids, temperature, correction=None):
    """Returns the logits of the candidates of all replicas, and the columns of the positives.

    The columns of the same candidate in other rows, accidental hits, are masked.

    Args:
      queries: float32 `[batch, width]`, of the per-replica batch.
      candidates: float32 `[batch, width]`, the positive of each query; the batch is static.
      ids: int32 `[batch]`, equal for equal candidates.
      temperature: divides the products of queries and candidates.
      correction: float32 `[batch]`, subtracted from the logits of each candidate; None for 0.

    Returns:
      logits float32 `[batch, global batch]`, and int32 `[batch]`.
    """
    here = device.current()
    batch, width = candidates.shape.as_list()
    if correction is None:
        correction = tf.zeros_like(candidates[:, 0])
    halves = [tf.cast(half, tf.float32)[:, tf.newaxis] for half in (ids // _HALF, ids % _HALF)]
    # One all-reduce for all that the other replicas need.
    columns = tf.concat([candidates, correction[:, tf.newaxis], *halves], axis=1)
    columns = here.cross_replica_concat(columns)
    candidates, correction, high, low = tf.split(columns, [width, 1, 1, 1], axis=1)
    logits = tf.matmul(queries, candidates, transpose_b=True) / temperature - correction[:, 0]
    column = here.replica_index * batch + tf.range(batch)
    is_same = tf.equal(halves[0], high[:, 0]) & tf.equal(halves[1], low[:, 0])
    is_positive = tf.equal(column[:, tf.newaxis], tf.range(here.num_replicas * batch))
    return tf.where(is_same & ~is_positive, _MASKED, logits), column
