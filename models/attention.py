"""Multi-head attention (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2)."""

from __future__ import annotations

import tensorflow as tf

from models.dropout import dropout as drop

# Added to the score of what must not be attended to; bfloat16 can hold it.
_MASKED = -1e9


def bias(allowed):
    """Returns float32 of the shape of bool `allowed`, which makes attention keep to it."""
    return tf.where(allowed, 0.0, _MASKED)


def self_attention(x, bias, num_heads, dropout, training):
    """Lets each position of `x` look at those that `bias` allows.

    Args:
      x: `[batch, length, hidden_size]`.
      bias: float32, broadcast to `[batch, num_heads, length, length]`.
      num_heads: divides hidden_size.
      dropout: share of the attention weights that training drops.
      training: whether it does.

    Returns:
      `[batch, length, hidden_size]`.
    """
    query, key, value = queries_keys_values(x, num_heads)
    return output(attend(query, key, value, bias, dropout, training))


def cross_attention(x, key, value, bias, dropout, training):
    """Lets each position of `x` look at a memory, whose `keys_values` these are.

    Args:
      x: `[batch, length, hidden_size]`.
      key: `[batch, num_heads, memory_length, hidden_size / num_heads]`.
      value: like `key`.
      bias: float32, broadcast to `[batch, num_heads, length, memory_length]`.
      dropout: see `self_attention`.
      training: see `self_attention`.
    """
    query = _split(_dense(x, x.shape[-1], "query"), key.shape.as_list()[1], 1)[0]
    return output(attend(query, key, value, bias, dropout, training))


def cached_self_attention(x, cache, position):
    """Lets each beam look at its own last token and at those before it.

    Args:
      x: `[batch, beams, hidden_size]`, of the tokens at `position`.
      cache: keys and values of the positions before it, two tensors
        `[batch, beams, num_heads, max_length, hidden_size / num_heads]`.
      position: int32 scalar.

    Returns:
      `[batch, beams, hidden_size]`, and the cache with this position in it.
    """
    _, beams, heads, length, head_size = cache[0].shape.as_list()
    query, *new = queries_keys_values(tf.reshape(x, [-1, 1, heads * head_size]), heads)
    positions = tf.range(length)
    here = tf.equal(positions, position)[:, tf.newaxis]
    cache = tuple(
        tf.where(here, tf.reshape(tensor, [-1, beams, heads, 1, head_size]), old)
        for tensor, old in zip(new, cache)
    )
    key, value = (tf.reshape(tensor, [-1, heads, length, head_size]) for tensor in cache)
    x = output(attend(query, key, value, bias(positions <= position)))
    return tf.reshape(x, [-1, beams, heads * head_size]), cache


def queries_keys_values(x, num_heads):
    """Returns three tensors `[batch, num_heads, length, hidden_size / num_heads]` of `x`."""
    return _split(_dense(x, 3 * x.shape[-1], "query_key_value"), num_heads, 3)


def keys_values(memory, num_heads):
    """Returns two tensors `[batch, num_heads, length, hidden_size / num_heads]` of `memory`."""
    return _split(_dense(memory, 2 * memory.shape[-1], "key_value"), num_heads, 2)


def attend(query, key, value, bias, dropout=0.0, training=False):
    """Returns the mean of `value`, weighted by how well `key` fits `query`.

    Args:
      query: `[batch, num_heads, length, head_size]`.
      key: `[batch, num_heads, memory_length, head_size]`.
      value: like `key`.
      bias: float32, broadcast to `[batch, num_heads, length, memory_length]`.
      dropout: see `self_attention`.
      training: see `self_attention`.

    Returns:
      A tensor like `query`.
    """
    query *= query.shape.as_list()[-1] ** -0.5
    scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)
    weights = tf.cast(tf.nn.softmax(scores + bias), value.dtype)
    weights = drop(weights, dropout, training)
    return tf.matmul(weights, value)


def output(heads):
    """Joins and projects `[batch, heads, length, head_size]` to `[batch, length, hidden_size]`."""
    batch, num_heads, length, head_size = heads.shape.as_list()
    joined = tf.transpose(heads, [0, 2, 1, 3])
    joined = tf.reshape(joined, [batch or -1, length, num_heads * head_size])
    return _dense(joined, num_heads * head_size, "output")


def _split(x, num_heads, parts):
    """Cuts `[batch, length, parts * hidden_size]` into parts `[batch, heads, length, size]`."""
    batch, length, units = x.shape.as_list()
    x = tf.reshape(x, [batch or -1, length, parts, num_heads, units // parts // num_heads])
    return tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]))


def _dense(x, units, name):
    return tf.compat.v1.layers.dense(x, units, name=name)
