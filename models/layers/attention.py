"""Multi-head attention (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2)."""

from __future__ import annotations

import tensorflow as tf

from models.layers import device
from models.layers.dropout import dropout as drop

# Added to the score of what must not be attended to; bfloat16 can hold it.
_MASKED = -1e9


def bias(allowed):
    """Returns float32 of the shape of bool `allowed`, which makes attention keep to it."""
    return tf.where(allowed, 0.0, _MASKED)


def self_attention(x, bias, params, training):
    """Lets each position of `x` look at those that `bias` allows.

    Args:
      x: `[batch, length, hidden_size]`.
      bias: float32, broadcast to `[batch, num_heads, length, length]`.
      params: `num_heads`, which divides hidden_size; `attention_dropout`, the share of the weights
        that training drops.
      training: whether it does.

    Returns:
      `[batch, length, hidden_size]`.
    """
    query, key, value = queries_keys_values(x, params)
    attended = attend(query, key, value, bias, params["attention_dropout"], training)
    return output(attended, params)


def cross_attention(x, key, value, bias, params, training):
    """Lets each position of `x` look at a memory, whose `keys_values` these are.

    Args:
      x: `[batch, length, hidden_size]`.
      key: `[batch, num_heads, memory_length, hidden_size / num_heads]`.
      value: like `key`.
      bias: float32, broadcast to `[batch, num_heads, length, memory_length]`.
      params: see `self_attention`.
      training: see `self_attention`.
    """
    (query,) = _project(x, 1, params, "query")
    attended = attend(query, key, value, bias, params["attention_dropout"], training)
    return output(attended, params)


def cached_self_attention(x, cache, position, params):
    """Lets each beam look at its own last token and at those before it.

    Args:
      x: `[batch, beams, hidden_size]`, of the tokens at `position`.
      cache: keys and values of the positions before it, two tensors
        `[batch, beams, num_heads, max_length, hidden_size / num_heads]`.
      position: int32 scalar.
      params: see `self_attention`.

    Returns:
      `[batch, beams, hidden_size]`, and the cache with this position in it.
    """
    _, beams, heads, length, head_size = cache[0].shape.as_list()
    query, *new = queries_keys_values(tf.reshape(x, [-1, 1, heads * head_size]), params)
    positions = tf.range(length)
    here = tf.equal(positions, position)[:, tf.newaxis]
    cache = tuple(
        tf.where(here, tf.reshape(tensor, [-1, beams, heads, 1, head_size]), old)
        for tensor, old in zip(new, cache)
    )
    key, value = (tf.reshape(tensor, [-1, heads, length, head_size]) for tensor in cache)
    x = output(attend(query, key, value, bias(positions <= position)), params)
    return tf.reshape(x, [-1, beams, heads * head_size]), cache


def queries_keys_values(x, params):
    """Returns three tensors `[batch, num_heads, length, hidden_size / num_heads]` of `x`."""
    return _project(x, 3, params, "query_key_value")


def keys_values(memory, params):
    """Returns two tensors `[batch, num_heads, length, hidden_size / num_heads]` of `memory`."""
    return _project(memory, 2, params, "key_value")


def attend(query, key, value, bias, dropout=0.0, training=False):
    """Returns the mean of `value`, weighted by how well `key` fits `query`.

    Args:
      query: `[batch, num_heads, length, head_size]`.
      key: `[batch, num_heads, memory_length, head_size]`.
      value: like `key`.
      bias: float32, broadcast to `[batch, num_heads, length, memory_length]`.
      dropout: share of the weights that training drops.
      training: whether it does.

    Returns:
      A tensor like `query`.
    """
    query *= query.shape.as_list()[-1] ** -0.5
    scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)
    weights = tf.cast(tf.nn.softmax(scores + bias), value.dtype)
    weights = drop(weights, dropout, training)
    return tf.matmul(weights, value)


def output(heads, params):
    """Joins and projects `[batch, heads, length, head_size]` to `[batch, length, hidden_size]`."""
    batch, num_heads, length, head_size = heads.shape.as_list()
    size = num_heads * head_size
    kernel, bias = _weights("output", size, size, heads.dtype)
    if device.is_tpu():
        kernel = tf.reshape(kernel, [num_heads, head_size, size])
        return tf.einsum("bhtd,hdc->btc", heads, kernel) + bias
    joined = tf.reshape(tf.transpose(heads, [0, 2, 1, 3]), [-1, size])
    joined = tf.nn.bias_add(tf.matmul(joined, kernel), bias)
    return tf.reshape(joined, [batch or -1, length, size])


def _project(x, parts, params, name):
    """Projects `x` `parts` times, each to `[batch, heads, length, hidden_size / heads]`.

    Kernel and bias are one variable for all. On a TPU they are cut into parts and heads before the
    product, because what comes out of it would have to be copied; elsewhere the product is one of
    matrices, which is faster, and its bits do not depend on the size of the batch.
    """
    batch, length, size = x.shape.as_list()
    num_heads = params["num_heads"]
    shape = [num_heads, size // num_heads]
    kernel, bias = _weights(name, size, parts * size, x.dtype)
    if device.is_tpu():
        kernel = tf.reshape(kernel, [size, parts, *shape])
        projected = tf.unstack(tf.einsum("btc,cphd->pbhtd", x, kernel))
        # Part by part, so that XLA sums up their gradients where it computes what follows.
        biases = tf.unstack(tf.reshape(bias, [parts, shape[0], 1, shape[1]]))
        return [part + own for part, own in zip(projected, biases)]
    projected = tf.nn.bias_add(tf.matmul(tf.reshape(x, [-1, size]), kernel), bias)
    projected = tf.reshape(projected, [batch or -1, length, parts, *shape])
    return tf.unstack(tf.transpose(projected, [2, 0, 3, 1, 4]))


def _weights(name, size, units, dtype):
    """Returns kernel `[size, units]` and bias `[units]`, as a dense layer of that name has them."""
    with tf.compat.v1.variable_scope(name):
        kernel = tf.compat.v1.get_variable("kernel", [size, units], dtype)
        zeros = tf.zeros_initializer()
        return kernel, tf.compat.v1.get_variable("bias", [units], dtype, initializer=zeros)
