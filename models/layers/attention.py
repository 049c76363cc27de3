"""Multi-head attention (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2).

Self-attention, cross-attention, and self-attention with a key/value cache for decoding. A mask,
such as the causal mask of a decoder, is an attention bias that is added to the scores.

Sizes: batch; length, of the queries; memory_length, of the keys and values; head_size is
hidden_size / num_heads. Tensors are float32 or bfloat16 unless stated otherwise.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from models.layers import dense, device, fusion
from models.layers.dropout import dropout, fused_keep, keep_mask, shape_of

# Score of a masked position; bfloat16 can represent it.
_MASKED = -1e9
_CAUSAL_BLOCK = 256  # queries


def attention_bias(mask):
    """Returns the attention bias of a mask.

    Args:
      mask: bool of any shape, True where a query may attend to a key.

    Returns:
      float32 of the same shape, 0 where True and -1e9 where False.
    """
    return tf.where(mask, 0.0, _MASKED)


@dataclasses.dataclass(eq=False)
class KeyValueCache:
    """Keys and values of the positions before, for self-attention that decodes token by token."""

    key: tf.Tensor  # [batch, beams, num_heads, max_length, head_size]; 0 from `position` on
    value: tf.Tensor  # like `key`
    position: tf.Tensor  # int32 scalar or [batch], the position of the next token

    def update(self, key, value):
        """Adds a position, `[batch * beams, num_heads, 1, head_size]`; returns all of them."""
        _, beams, num_heads, length, head_size = self.key.shape.as_list()
        position = tf.reshape(self.position, [-1, 1, 1, 1])
        is_new = tf.equal(tf.range(length), position)[..., tf.newaxis]
        self.key, self.value = (
            tf.where(is_new, tf.reshape(new, [-1, beams, num_heads, 1, head_size]), old)
            for new, old in ((key, self.key), (value, self.value))
        )
        shape = [-1, num_heads, length, head_size]
        return tf.reshape(self.key, shape), tf.reshape(self.value, shape)


def self_attention(x, bias, params, training, cache=None):
    """Multi-head self-attention.

    Args:
      x: `[batch, length, hidden_size]`; with a cache `[batch, beams, hidden_size]`, the token of
        each beam at `cache.position`.
      bias: attention bias, float32, broadcast to `[batch, num_heads, length, length]`; with a cache
        `[max_length]`, to its positions.
      params: `num_heads`, which divides hidden_size; `attention_dropout`, the dropout rate of the
        attention weights.
      training: True turns dropout on.
      cache: a `KeyValueCache`, to which the keys and values of `x` are added.

    Returns:
      A tensor of the shape of `x`.
    """
    _, beams, size = x.shape.as_list()
    if cache is not None:
        x = tf.reshape(x, [-1, 1, size])  # [batch * beams, 1, hidden_size]
    query, key, value = _project(x, 3, params, "query_key_value")
    if cache is not None:
        key, value = cache.update(key, value)
    heads = attend(query, key, value, bias, params["attention_dropout"], training)
    y = project_output(heads, "output")
    return y if cache is None else tf.reshape(y, [-1, beams, size])


def project(x, names, params):
    """Projects `x` to queries, keys or values, each with a kernel and a bias in a scope.

    Args:
      x: `[batch, length, hidden_size]`.
      names: variable scopes of the projections.
      params: see `self_attention`.

    Returns:
      A tensor `[batch, num_heads, length, head_size]` per name.
    """
    size = x.shape.as_list()[-1]
    weights = [dense.kernel_and_bias(name, [size, size], x.dtype) for name in names]
    if device.is_tpu():
        return [split_heads(x, kernel, bias, 1, params)[0] for kernel, bias in weights]
    # One matrix product for all.
    kernels, biases = zip(*weights)
    return split_heads(x, tf.concat(kernels, 1), tf.concat(biases, 0), len(names), params)


def cross_attention(x, key, value, bias, params, training):
    """Multi-head attention from `x` to a memory, such as the output of an encoder.

    Args:
      x: `[batch, length, hidden_size]`.
      key: `[batch, num_heads, memory_length, head_size]`, from `keys_values(memory)`.
      value: like `key`.
      bias: attention bias, float32, broadcast to `[batch, num_heads, length, memory_length]`.
      params: see `self_attention`.
      training: True turns dropout on.

    Returns:
      `[batch, length, hidden_size]`.
    """
    (query,) = _project(x, 1, params, "query")
    heads = attend(query, key, value, bias, params["attention_dropout"], training)
    return project_output(heads, "output")


def keys_values(memory, params):
    """Projects a memory to the keys and values of `cross_attention`.

    Args:
      memory: `[batch, memory_length, hidden_size]`.
      params: see `self_attention`.

    Returns:
      (key, value), each `[batch, num_heads, memory_length, head_size]`.
    """
    return _project(memory, 2, params, "key_value")


def attend(query, key, value, bias, dropout_rate=0.0, training=False, is_scaled=False):
    """Scaled dot-product attention: softmax(query key^T / sqrt(head_size) + bias) value.

    The softmax is computed in float32.

    Args:
      query: `[batch, num_heads, length, head_size]`.
      key: `[batch, num_heads, memory_length, head_size]`.
      value: like `key`, of any size.
      bias: attention bias, float32, broadcast to `[batch, num_heads, length, memory_length]`. It
        may be learned: it has a gradient.
      dropout_rate: of the attention weights.
      training: True turns dropout on.
      is_scaled: True if the queries are divided by sqrt(head_size) already, or by something else.

    Returns:
      `[batch, num_heads, length, size of a value]`.
    """
    if not is_scaled:
        query *= query.shape.as_list()[-1] ** -0.5
    if training and device.is_tpu():
        return _attend_on_tpu(query, key, value, bias, dropout_rate)
    if device.current().fuses:
        return _attend_fused(query, key, value, bias, dropout_rate if training else 0.0)
    scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)
    weights = tf.cast(tf.nn.softmax(scores + bias), value.dtype)
    weights = dropout(weights, dropout_rate, training)
    return tf.matmul(weights, value)


def attend_causally(query, key, value, bias, dropout_rate=0.0, training=False):
    """Computes `attend` where no query attends to a later position.

    A TPU computes blocks of queries, each with the keys up to its end: of four blocks 5/8 of the
    scores.

    Args:
      query: see `attend`; key and value have its length.
      key: see `attend`.
      value: see `attend`.
      bias: attention bias, float32, `[..., length, length]`, that masks the keys after a query.
      dropout_rate: see `attend`.
      training: see `attend`.

    Returns:
      See `attend`.
    """
    length = query.shape.as_list()[2]
    if not device.is_tpu() or length <= _CAUSAL_BLOCK:
        return attend(query, key, value, bias, dropout_rate, training)
    outputs = []
    for begin in range(0, length, _CAUSAL_BLOCK):
        end = min(begin + _CAUSAL_BLOCK, length)
        of_block = query[:, :, begin:end], key[:, :, :end], value[:, :, :end]
        outputs.append(attend(*of_block, bias[..., begin:end, :end], dropout_rate, training))
    return tf.concat(outputs, axis=2)


def _attend_on_tpu(query, key, value, bias, dropout_rate):
    """Computes `attend` in training, of scaled queries, with few passes over the scores.

    Divides by the sums of the softmax after the product with the values. In bfloat16 the sums of
    its gradient are sums over the outputs (Dao et al. 2022, arXiv:2205.14135, appendix B.2), not
    over the scores.
    """
    batch, num_heads, length, _ = query.shape.as_list()
    mask, scale = None, 1.0
    if dropout_rate:
        # XLA lays out the scores with the queries last.
        shape = [batch, num_heads, key.shape.as_list()[2], length]
        mask, scale = keep_mask(shape, dropout_rate)
        mask = tf.transpose(mask, [0, 1, 3, 2])

    def keep(values):
        return values if mask is None else tf.where(mask, values, 0.0)

    @tf.custom_gradient
    def attended(query, key, value, bias):
        scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32) + bias
        powers = tf.exp(scores - tf.reduce_max(scores, -1, keepdims=True))
        factor = scale / tf.reduce_sum(powers, -1, keepdims=True)
        kept = tf.cast(keep(powers), value.dtype)
        outputs = tf.cast(tf.matmul(kept, value), tf.float32) * factor

        def gradient(upstream):
            upstream = tf.cast(upstream, tf.float32)
            scaled = tf.cast(upstream * factor, value.dtype)
            kept_gradient = keep(tf.cast(tf.matmul(scaled, value, transpose_b=True), tf.float32))
            if value.dtype == tf.bfloat16:
                sums = tf.reduce_sum(upstream * outputs, -1, keepdims=True)
            else:  # without the outputs, which XLA keeps in bfloat16 for the next product alone
                sums = tf.reduce_sum(kept_gradient * powers, -1, keepdims=True)
            sums *= factor / scale
            exact_gradient = powers * (kept_gradient - sums)
            scores_gradient = tf.cast(exact_gradient, value.dtype)
            return (
                tf.matmul(scores_gradient, key),
                tf.matmul(scores_gradient, query, transpose_a=True),
                tf.matmul(kept, scaled, transpose_a=True),
                _sum_to_shape_of(bias, exact_gradient),
            )

        return tf.cast(outputs, value.dtype), gradient

    return attended(query, key, value, bias)


def _attend_fused(query, key, value, bias, dropout_rate):
    """Computes `attend` on a CPU, of scaled queries, with few passes over the scores.

    The sums of the gradient of the softmax are sums over the outputs (Dao et al. 2022,
    arXiv:2205.14135, appendix B.2), not over the scores.
    """

    @tf.custom_gradient
    def attended(query, key, value, bias):
        scores = tf.matmul(query, key, transpose_b=True)
        weights = tf.nn.softmax(fusion.compiled(_add_bias)(scores, bias))
        weights = tf.cast(weights, value.dtype)
        keep = fused_keep(shape_of(weights), dropout_rate) if dropout_rate else tf.identity
        kept = keep(weights)
        outputs = tf.matmul(kept, value)

        def gradient(upstream):
            weights_gradient = keep(tf.matmul(upstream, value, transpose_b=True))
            scores_gradient = fusion.compiled(_softmax_gradient)(
                weights, weights_gradient, upstream, outputs
            )
            return (
                tf.matmul(scores_gradient, key),
                tf.matmul(scores_gradient, query, transpose_a=True),
                tf.matmul(kept, upstream, transpose_a=True),
                _sum_to_shape_of(bias, scores_gradient),
            )

        return outputs, gradient

    return attended(query, key, value, bias)


def _sum_to_shape_of(bias, scores_gradient):
    """Returns the gradient of an attention bias that was broadcast to the scores, float32.

    A graph does not run it for a constant bias, such as a mask.
    """
    axes, _ = tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(bias), s1=tf.shape(scores_gradient))
    total = tf.reduce_sum(tf.cast(scores_gradient, tf.float32), axes)
    return tf.reshape(total, tf.shape(bias))


def _add_bias(scores, bias):
    return tf.cast(scores, tf.float32) + bias


def _softmax_gradient(weights, gradient, upstream, outputs):
    dtype = weights.dtype
    weights, gradient, upstream, outputs = (
        tf.cast(tensor, tf.float32) for tensor in (weights, gradient, upstream, outputs)
    )
    sums = tf.reduce_sum(upstream * outputs, -1, keepdims=True)
    return tf.cast(weights * (gradient - sums), dtype)


def project_output(heads, name):
    """Projects the heads of `attend` to the output of multi-head attention.

    Args:
      heads: `[batch, num_heads, length, head_size]`.
      name: variable scope of the kernel and the bias.

    Returns:
      `[batch, length, hidden_size]`.
    """
    _, num_heads, _, head_size = heads.shape.as_list()
    size = num_heads * head_size
    return join_heads(heads, *dense.kernel_and_bias(name, [size, size], heads.dtype))


def join_heads(heads, kernel, bias):
    """Computes `project_output` with the variables of another model.

    Args:
      heads: `[batch, num_heads, length, head_size]`.
      kernel: `[hidden_size, hidden_size]`.
      bias: `[hidden_size]`.

    Returns:
      `[batch, length, hidden_size]`.
    """
    batch, num_heads, length, head_size = heads.shape.as_list()
    size = num_heads * head_size
    if device.is_tpu():
        kernel = tf.reshape(kernel, [num_heads, head_size, size])
        return tf.einsum("bhtd,hdc->btc", heads, kernel) + bias
    joined = tf.reshape(tf.transpose(heads, [0, 2, 1, 3]), [-1, size])
    length = tf.shape(heads)[2] if length is None else length
    return dense.add_bias(tf.matmul(joined, kernel), bias, [batch or -1, length, size])


def _project(x, num_parts, params, name):
    """Projects `x` like `project`; one variable holds the kernels of all parts."""
    size = x.shape.as_list()[-1]
    kernel, bias = dense.kernel_and_bias(name, [size, num_parts * size], x.dtype)
    return split_heads(x, kernel, bias, num_parts, params)


def split_heads(x, kernel, bias, num_parts, params):
    """Computes `x kernel + bias`, split into parts and heads.

    A TPU splits the kernel into parts and heads before the product, because XLA would have to copy
    the result. Elsewhere one matrix product is faster, and its bits do not depend on the batch
    size.

    Args:
      x: `[batch, length, hidden_size]`.
      kernel: `[hidden_size, num_parts * hidden_size]`.
      bias: `[num_parts * hidden_size]`.
      num_parts: number of projections.
      params: see `self_attention`.

    Returns:
      `num_parts` tensors `[batch, num_heads, length, head_size]`.
    """
    batch, length, size = x.shape.as_list()
    num_heads = params["num_heads"]
    shape = [num_heads, size // num_heads]
    if device.is_tpu():
        kernel = tf.reshape(kernel, [size, num_parts, *shape])
        parts = tf.unstack(tf.einsum("btc,cphd->pbhtd", x, kernel))
        # One bias per part, so that XLA fuses the sums of their gradients with what follows.
        biases = tf.unstack(tf.reshape(bias, [num_parts, shape[0], 1, shape[1]]))
        return [part + bias for part, bias in zip(parts, biases)]
    length = tf.shape(x)[1] if length is None else length
    projected = tf.matmul(tf.reshape(x, [-1, size]), kernel)
    projected = dense.add_bias(projected, bias, [batch or -1, length, num_parts * size])
    projected = tf.reshape(projected, [batch or -1, length, num_parts, *shape])
    return tf.unstack(tf.transpose(projected, [2, 0, 3, 1, 4]))
