"""Transformer from sentences to sentences (Vaswani et al. 2017, arXiv:1706.03762).

Encoder, decoder and output share one embedding, positions are sinusoids, as in the paper.
`transformer_tiny` has the sizes of Wu et al. 2021 (arXiv:2105.14462), `transformer_small` those of
fairseq's IWSLT recipe; `transformer_base` and `transformer_big` have the sizes and the dropout of
the paper's table 3. To French, unlike to German, its big one has a dropout of 0.1.
"""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from models.layers import attention, normalization
from models.layers.dropout import dropout
from models.model import ModelError, check_fractions
from models.text import decoding, seq2seq


def default_params(**of_size):
    """Returns the hyperparameters of `inference` and `seq2seq.loss`; `of_size` replaces some."""
    return {
        **seq2seq.default_params(),
        "num_layers": 6,  # of the encoder, and of the decoder
        "hidden_size": 512,
        "ffn_size": 2048,
        "num_heads": 8,
        "pre_norm": False,  # layer norm before each sublayer (Xiong et al. 2020), not after it
        "dropout": 0.1,  # of embeddings, and of what each sublayer adds
        "attention_dropout": 0.0,  # of attention weights
        **of_size,
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
        raise ModelError(f"hidden_size={params['hidden_size']} must be even: sines and cosines")
    check_fractions(params, "dropout", "attention_dropout")


def inference(features, params, training):
    """Computes logits of target tokens, or, where there is no target, finds one.

    Args:
      features: see `seq2seq`; `{"source": int32 [batch, length], "target": the same}`, or the
        source alone.
      params: see `default_params`.
      training: whether dropout is on.

    Returns:
      `{"logits": [batch, length, vocab_size]}` of `params["precision"]`, or what `decoding.search`
      returns, of at most as many tokens as the source has room for.
    """
    source = features["source"]
    source_segments = seq2seq.segments(source)
    memory = _encode(source, source_segments, params, training)
    if "target" not in features:
        return _translate(memory, source_segments, params)
    return {"logits": _decode(features["target"], memory, source_segments, params, training)}


def _encode(source, segments, params, training):
    """Returns `[batch, length, hidden_size]`."""
    same = _same(segments, segments)
    look_around = _self_attention(same, params, training)
    sinusoids = _sinusoids(source.shape.as_list()[1], params)
    x = _embed(source, _positions(same), sinusoids, params, training)
    for i in range(params["num_layers"]):
        with tf.compat.v1.variable_scope(f"encoder/layer_{i + 1}"):
            x = _sublayer("self_attention", x, look_around, params, training)
            x = _sublayer("ffn", x, functools.partial(_ffn, params=params), params, training)
    return _last_norm("encoder", x, params)


def _decode(target, memory, source_segments, params, training):
    """Returns the logits of every token of `target`, `[batch, length, vocab_size]`."""
    segments = seq2seq.segments(target)
    same = _same(segments, segments)
    look = _self_attention(tf.linalg.band_part(same, -1, 0), params, training)
    memory_bias = attention.bias(_same(segments, source_segments))[:, tf.newaxis]

    def look_back(layer, x):
        del layer
        return look(x)

    sinusoids = _sinusoids(target.shape.as_list()[1], params)
    x = _embed(seq2seq.shifted_right(target), _positions(same), sinusoids, params, training)
    return _decoder(x, look_back, _keys_values(memory, params), memory_bias, params, training)


def _translate(memory, source_segments, params):
    """Returns what `decoding.search` finds."""
    keys_values = _keys_values(memory, params)
    memory_bias = attention.bias(source_segments > 0)[:, tf.newaxis, tf.newaxis]

    def step(tokens, position, caches):
        new_caches = []

        def look_back(layer, x):
            x, cache = attention.cached_self_attention(x, caches[layer], position, params)
            new_caches.append(cache)
            return x

        # To the memory, beams are what positions are in training: many queries, one sentence.
        x = _embed(tokens, position, sinusoids, params, training=False)
        logits = _decoder(x, look_back, keys_values, memory_bias, params, training=False)
        return logits, new_caches

    length, hidden_size = memory.shape.as_list()[1:]
    sinusoids = _sinusoids(length, params)
    shape = [params["num_heads"], length, hidden_size // params["num_heads"]]
    empty = tf.zeros([tf.shape(memory)[0], params["beam_size"], *shape], memory.dtype)
    return decoding.search(step, [(empty, empty)] * params["num_layers"], length, params)


def _decoder(x, look_back, keys_values, memory_bias, params, training):
    """Runs `x` `[batch, length, hidden_size]` through the decoder, and returns logits.

    Args:
      x: embedded tokens.
      look_back: `(layer, x) -> x`, the self-attention of a layer.
      keys_values: of the memory, those of each layer.
      memory_bias: see `attention.cross_attention`.
      params: see `default_params`.
      training: whether dropout is on.
    """
    for i in range(params["num_layers"]):

        def look_at_memory(x, layer=i):
            return attention.cross_attention(x, *keys_values[layer], memory_bias, params, training)

        with tf.compat.v1.variable_scope(f"decoder/layer_{i + 1}"):
            own = functools.partial(look_back, i)
            x = _sublayer("self_attention", x, own, params, training)
            x = _sublayer("cross_attention", x, look_at_memory, params, training)
            x = _sublayer("ffn", x, functools.partial(_ffn, params=params), params, training)
    x = _last_norm("decoder", x, params)
    flat = tf.reshape(x, [-1, params["hidden_size"]])
    logits = tf.matmul(flat, _embedding(params), transpose_b=True)
    return tf.reshape(logits, [-1, x.shape.as_list()[1], params["vocab_size"]])


def _self_attention(allowed, params, training):
    """Returns `x -> x`, which keeps to bool `allowed`, `[batch, length, length]`."""
    bias = attention.bias(allowed)[:, tf.newaxis]
    return lambda x: attention.self_attention(x, bias, params, training)


def _sublayer(name, x, function, params, training):
    """Returns `x` and what `function` adds to it, normalised before or after."""
    with tf.compat.v1.variable_scope(name):
        added = function(_layer_norm(x, params) if params["pre_norm"] else x)
        x += dropout(added, params["dropout"], training)
        return x if params["pre_norm"] else _layer_norm(x, params)


def _last_norm(name, x, params):
    """Of a stack whose sublayers normalise what they take, not what they give."""
    with tf.compat.v1.variable_scope(name):
        return _layer_norm(x, params) if params["pre_norm"] else x


def _layer_norm(x, params):
    return normalization.layer_norm(x)


def _ffn(x, params):
    x = tf.compat.v1.layers.dense(x, params["ffn_size"], tf.nn.relu, name="hidden")
    return tf.compat.v1.layers.dense(x, params["hidden_size"], name="output")


def _keys_values(memory, params):
    """Returns the keys and values of the memory, those of each layer of the decoder."""
    found = []
    for i in range(params["num_layers"]):
        with tf.compat.v1.variable_scope(f"decoder/layer_{i + 1}/cross_attention"):
            found.append(attention.keys_values(memory, params))
    return found


def _embedding(params):
    """Returns `[vocab_size, hidden_size]`, one for encoder, decoder and output."""
    with tf.compat.v1.variable_scope("embedding", reuse=tf.compat.v1.AUTO_REUSE):
        return tf.compat.v1.get_variable(
            "weights",
            [params["vocab_size"], params["hidden_size"]],
            dtype=params["precision"],
            initializer=tf.compat.v1.random_normal_initializer(
                stddev=params["hidden_size"] ** -0.5
            ),
        )


def _embed(tokens, positions, sinusoids, params, training):
    """Returns `[batch, length, hidden_size]` of int32 `[batch, length]`.

    `positions`, rows of `sinusoids`, are counted from 0 in each sentence: like `tokens`, or one for
    all.
    """
    embedding = _embedding(params)
    x = tf.gather(embedding, tokens) * params["hidden_size"] ** 0.5
    return dropout(x + tf.gather(sinusoids, positions), params["dropout"], training)


def _sinusoids(length, params):
    """Returns `[length, hidden_size]`, what is added to the embedding at each position."""
    half = params["hidden_size"] // 2
    rates = np.float32(10000.0 ** -(np.arange(half) / half))
    angles = tf.range(length, dtype=tf.float32)[:, tf.newaxis] * rates
    return tf.cast(tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1), params["precision"])


def _same(segments, others):
    """Returns bool `[batch, length, other length]`: whether two positions are of one sentence."""
    return tf.equal(segments[:, :, tf.newaxis], others[:, tf.newaxis])


def _positions(same):
    """Returns int32 `[batch, length]`: how many positions of its own sentence come before each."""
    return tf.reduce_sum(tf.cast(tf.linalg.band_part(same, -1, 0), tf.int32), axis=2) - 1


def _model(name, **sizes):
    params = functools.partial(default_params, **sizes)
    return seq2seq.model(name, params, inference, check_params)


TINY = _model("transformer_tiny", num_layers=4, hidden_size=128, ffn_size=256, num_heads=4)
SMALL = _model("transformer_small", num_layers=6, hidden_size=512, ffn_size=1024, num_heads=4)
BASE = _model("transformer_base")
BIG = _model("transformer_big", hidden_size=1024, ffn_size=4096, num_heads=16, dropout=0.3)
