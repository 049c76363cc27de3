"""Encoder-decoder Transformer (Vaswani et al. 2017, arXiv:1706.03762).

Encoder, decoder and the output projection share one embedding; position encodings are sinusoidal.
Training is teacher-forced, with a causal mask in the decoder; prediction is a beam search with a
key/value cache. `transformer_tiny` has the sizes of Wu et al. 2021 (arXiv:2105.14462),
`transformer_small` those of fairseq's IWSLT recipe, `transformer_base` and `transformer_big` the
sizes and dropout rates of table 3 of the paper, whose big English-French model has a dropout of
0.1.

Sequences are packed: a row may hold several sentences. The attention bias keeps attention within a
sentence.
"""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from models.layers import attention, normalization
from models.layers.dropout import dropout
from models.model import ModelError, check_fractions
from models.text import decoding, seq2seq


def default_params(**sizes):
    """Returns the hyperparameters of `inference` and `seq2seq.losses`; `sizes` replaces some."""
    return {
        **seq2seq.default_params(),
        "num_layers": 6,  # of the encoder, and of the decoder
        "hidden_size": 512,
        "ffn_size": 2048,  # hidden units of the feed-forward networks
        "num_heads": 8,  # attention heads
        "pre_norm": False,  # layer norm before each sublayer (Xiong et al. 2020), not after it
        "dropout": 0.1,  # of embeddings and sublayers
        "attention_dropout": 0.0,  # of attention weights
        **sizes,
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    seq2seq.check_params(params)
    for name in ("num_layers", "hidden_size", "ffn_size", "num_heads"):
        if params[name] < 1:
            raise ModelError(f"{name}={params[name]} must be at least 1")
    if params["hidden_size"] % params["num_heads"]:
        raise ModelError(
            f"hidden_size={params['hidden_size']} must be a multiple of "
            f"num_heads={params['num_heads']}"
        )
    if params["hidden_size"] % 2:
        raise ModelError(f"hidden_size={params['hidden_size']} must be even, for sines and cosines")
    check_fractions(params, "dropout", "attention_dropout")


def inference(features, params, training):
    """Computes logits of the target tokens, or searches a target if there is none.

    Args:
      features: `{"source": int32 [batch, length], "target": int32 [batch, length]}` for training
        and evaluation, `{"source"}` for prediction; see `seq2seq`.
      params: see `default_params`.
      training: True turns dropout on.

    Returns:
      `{"logits": [batch, length, vocab_size]}` of `params["precision"]`; for prediction the result
      of `decoding.search`, `{"target": int32 [batch, length], "score": float32 [batch]}`.
    """
    source = features["source"]
    source_segments = seq2seq.segments(source)
    memory = _encode(source, source_segments, params, training)
    if "target" not in features:
        return _search(memory, source_segments, params)
    return {"logits": _decode(features["target"], memory, source_segments, params, training)}


def _encode(source, segments, params, training):
    """Runs the encoder.

    Args:
      source: int32 `[batch, length]`.
      segments: int32 `[batch, length]`, from `seq2seq.segments`.
      params: see `default_params`.
      training: True turns dropout on.

    Returns:
      `[batch, length, hidden_size]`, the memory of the decoder.
    """
    mask = _same_segment(segments, segments)
    bias = attention.attention_bias(mask)[:, tf.newaxis]  # [batch, 1, length, length]

    def self_attend(x):
        return attention.self_attention(x, bias, params, training)

    encodings = _position_encodings(source.shape.as_list()[1], params)
    x = _embed(source, _positions(mask), encodings, params, training)
    for i in range(params["num_layers"]):
        with tf.compat.v1.variable_scope(f"encoder/layer_{i + 1}"):
            x = _sublayer("self_attention", x, self_attend, params, training)
            x = _sublayer("ffn", x, functools.partial(_ffn, params=params), params, training)
    return _final_norm("encoder", x, params)


def _decode(target, memory, source_segments, params, training):
    """Runs the decoder with teacher forcing.

    Args:
      target: int32 `[batch, length]`.
      memory: `[batch, source_length, hidden_size]`, from `_encode`.
      source_segments: int32 `[batch, source_length]`.
      params: see `default_params`.
      training: True turns dropout on.

    Returns:
      Logits `[batch, length, vocab_size]` of each target token, given those before it.
    """
    segments = seq2seq.segments(target)
    mask = _same_segment(segments, segments)
    causal_mask = tf.linalg.band_part(mask, -1, 0)  # lower triangle
    causal_bias = attention.attention_bias(causal_mask)[:, tf.newaxis]
    memory_mask = _same_segment(segments, source_segments)
    memory_bias = attention.attention_bias(memory_mask)[:, tf.newaxis]

    def self_attend(x, layer):
        del layer
        return attention.self_attention(x, causal_bias, params, training)

    encodings = _position_encodings(target.shape.as_list()[1], params)
    x = _embed(seq2seq.shifted_right(target), _positions(mask), encodings, params, training)
    memory_keys_values = _keys_values(memory, params)
    return _decoder(x, self_attend, memory_keys_values, memory_bias, params, training)


def _search(memory, source_segments, params):
    """Returns the result of `decoding.search`: greedy decoding or beam search with a cache.

    Args:
      memory: `[batch, length, hidden_size]`, from `_encode`.
      source_segments: int32 `[batch, length]`.
      params: see `default_params`.
    """
    memory_keys_values = _keys_values(memory, params)
    memory_bias = attention.attention_bias(source_segments > 0)[:, tf.newaxis, tf.newaxis]

    def step(tokens, position, caches):
        """From int32 `[batch, beams]` at `position` to `[batch, beams, vocab_size]`."""
        new_caches = []

        def self_attend(x, layer):
            x, cache = attention.cached_self_attention(x, caches[layer], position, params)
            new_caches.append(cache)
            return x

        # Cross-attention treats beams as positions: several queries to the memory of one sentence.
        x = _embed(tokens, position, encodings, params, training=False)
        logits = _decoder(x, self_attend, memory_keys_values, memory_bias, params, training=False)
        return logits, new_caches

    length, hidden_size = memory.shape.as_list()[1:]
    encodings = _position_encodings(length, params)
    shape = [params["num_heads"], length, hidden_size // params["num_heads"]]
    empty = tf.zeros([tf.shape(memory)[0], params["beam_size"], *shape], memory.dtype)
    return decoding.search(step, [(empty, empty)] * params["num_layers"], length, params)


def _decoder(x, self_attend, memory_keys_values, memory_bias, params, training):
    """Runs the layers of the decoder and the output projection.

    Args:
      x: `[batch, length, hidden_size]`, embedded tokens.
      self_attend: `(x, layer) -> x`, the causal self-attention of a layer.
      memory_keys_values: `[(key, value)]` of the memory, one pair per layer.
      memory_bias: attention bias to the memory, float32, broadcast to
        `[batch, num_heads, length, source_length]`.
      params: see `default_params`.
      training: True turns dropout on.

    Returns:
      Logits `[batch, length, vocab_size]`.
    """
    for i in range(params["num_layers"]):

        def cross_attend(x, layer=i):
            key, value = memory_keys_values[layer]
            return attention.cross_attention(x, key, value, memory_bias, params, training)

        with tf.compat.v1.variable_scope(f"decoder/layer_{i + 1}"):
            attend = functools.partial(self_attend, layer=i)
            x = _sublayer("self_attention", x, attend, params, training)
            x = _sublayer("cross_attention", x, cross_attend, params, training)
            x = _sublayer("ffn", x, functools.partial(_ffn, params=params), params, training)
    x = _final_norm("decoder", x, params)
    flat = tf.reshape(x, [-1, params["hidden_size"]])
    logits = tf.matmul(flat, _embedding(params), transpose_b=True)
    return tf.reshape(logits, [-1, x.shape.as_list()[1], params["vocab_size"]])


def _sublayer(name, x, function, params, training):
    """Adds `function(x)` to `x`, a residual connection with dropout and pre-norm or post-norm.

    Args:
      name: variable scope.
      x: `[batch, length, hidden_size]`.
      function: `x -> x`.
      params: see `default_params`.
      training: True turns dropout on.

    Returns:
      `[batch, length, hidden_size]`.
    """
    with tf.compat.v1.variable_scope(name):
        residual = function(normalization.layer_norm(x) if params["pre_norm"] else x)
        x += dropout(residual, params["dropout"], training)
        return x if params["pre_norm"] else normalization.layer_norm(x)


def _final_norm(name, x, params):
    """Final layer norm of a pre-norm stack."""
    with tf.compat.v1.variable_scope(name):
        return normalization.layer_norm(x) if params["pre_norm"] else x


def _ffn(x, params):
    """Position-wise feed-forward network, `[batch, length, hidden_size]` to the same."""
    x = tf.compat.v1.layers.dense(x, params["ffn_size"], tf.nn.relu, name="hidden")
    return tf.compat.v1.layers.dense(x, params["hidden_size"], name="output")


def _keys_values(memory, params):
    """Returns `[(key, value)]` of the memory, one pair per decoder layer.

    Each is `[batch, num_heads, length, head_size]`. They are computed once per source.
    """
    pairs = []
    for i in range(params["num_layers"]):
        with tf.compat.v1.variable_scope(f"decoder/layer_{i + 1}/cross_attention"):
            pairs.append(attention.keys_values(memory, params))
    return pairs


def _embedding(params):
    """Returns `[vocab_size, hidden_size]`, shared by encoder, decoder and output projection."""
    with tf.compat.v1.variable_scope("embedding", reuse=tf.compat.v1.AUTO_REUSE):
        return tf.compat.v1.get_variable(
            "weights",
            [params["vocab_size"], params["hidden_size"]],
            dtype=params["precision"],
            initializer=tf.compat.v1.random_normal_initializer(
                stddev=params["hidden_size"] ** -0.5
            ),
        )


def _embed(tokens, positions, encodings, params, training):
    """Embeds tokens and adds their position encodings.

    Args:
      tokens: int32 `[batch, length]`.
      positions: int32 `[batch, length]` or scalar, rows of `encodings`; from 0 in each sentence.
      encodings: `[length, hidden_size]`, from `_position_encodings`.
      params: see `default_params`.
      training: True turns dropout on.

    Returns:
      `[batch, length, hidden_size]`.
    """
    # Rows of the float32 variable: the cast of all rows would be kept for all users of the table.
    rows = tf.gather(_embedding({**params, "precision": "float32"}), tokens)
    x = tf.cast(rows, params["precision"]) * params["hidden_size"] ** 0.5
    return dropout(x + tf.gather(encodings, positions), params["dropout"], training)


def _position_encodings(length, params):
    """Returns sinusoidal position encodings, `[length, hidden_size]` of `params["precision"]`."""
    half = params["hidden_size"] // 2
    rates = np.float32(10000.0 ** -(np.arange(half) / half))
    angles = tf.range(length, dtype=tf.float32)[:, tf.newaxis] * rates
    return tf.cast(tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1), params["precision"])


def _same_segment(query_segments, key_segments):
    """Returns the mask of queries and keys in the same sentence.

    Args:
      query_segments: int32 `[batch, length]`, from `seq2seq.segments`.
      key_segments: int32 `[batch, memory_length]`.

    Returns:
      bool `[batch, length, memory_length]`.
    """
    return tf.equal(query_segments[:, :, tf.newaxis], key_segments[:, tf.newaxis])


def _positions(mask):
    """Returns int32 `[batch, length]`, positions within a sentence, from `_same_segment`."""
    return tf.reduce_sum(tf.cast(tf.linalg.band_part(mask, -1, 0), tf.int32), axis=2) - 1


def _model(name, **sizes):
    params = functools.partial(default_params, **sizes)
    return seq2seq.model(name, params, inference, check_params)


TINY = _model("transformer_tiny", num_layers=4, hidden_size=128, ffn_size=256, num_heads=4)
SMALL = _model("transformer_small", num_layers=6, hidden_size=512, ffn_size=1024, num_heads=4)
BASE = _model("transformer_base")
BIG = _model("transformer_big", hidden_size=1024, ffn_size=4096, num_heads=16, dropout=0.3)
