"""Encoder-decoder Transformer (Vaswani et al. 2017, arXiv:1706.03762).

    inference({"source": source, "target": target}, params, training=True)["logits"]
    decode({"source": source}, params)["target"]

Training is teacher-forced, with a causal mask in the decoder; prediction is a beam search with a
key/value cache. Encoder, decoder and the output projection share one embedding; position encodings
are sinusoidal. Sequences are packed: a row may hold several sentences, and the attention bias keeps
attention within a sentence.

Sizes: batch; length, tokens of a row; hidden_size. Tensors are of `params["precision"]` unless
stated otherwise.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from models.layers import attention
from models.layers.dropout import dropout
from models.layers.normalization import layer_norm
from models.model import ModelError, check_fractions, check_positive
from models.text import checkpoint_families, decoding, seq2seq

# tiny: Wu et al. 2021, arXiv:2105.14462; small: fairseq's IWSLT recipe; base and big: table 3 of
# the paper, whose big English-French model has a dropout of 0.1.
SIZES = {
    "tiny": {"num_layers": 4, "hidden_size": 128, "ffn_size": 256, "num_heads": 4, "dropout": 0.1},
    "small": {
        "num_layers": 6,
        "hidden_size": 512,
        "ffn_size": 1024,
        "num_heads": 4,
        "dropout": 0.1,
    },
    "base": {"num_layers": 6, "hidden_size": 512, "ffn_size": 2048, "num_heads": 8, "dropout": 0.1},
    "big": {
        "num_layers": 6,
        "hidden_size": 1024,
        "ffn_size": 4096,
        "num_heads": 16,
        "dropout": 0.3,
    },
}


def default_params():
    """Returns the hyperparameters of `inference`, `decode` and `seq2seq.losses`."""
    return {
        **seq2seq.default_params(),
        "size": "base",  # one of SIZES, which sets:
        **SIZES["base"],  # layers of encoder and decoder each; dropout of embeddings and sublayers
        "pre_norm": False,  # layer norm before each sublayer (Xiong et al. 2020), not after it
        "attention_dropout": 0.0,  # of attention weights
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    seq2seq.check_params(params)
    check_positive(params, "num_layers", "hidden_size", "ffn_size", "num_heads")
    if params["hidden_size"] % params["num_heads"]:
        raise ModelError(
            f"hidden_size={params['hidden_size']} must be a multiple of "
            f"num_heads={params['num_heads']}"
        )
    if params["hidden_size"] % 2:
        raise ModelError(f"hidden_size={params['hidden_size']} must be even, for sines and cosines")
    check_fractions(params, "dropout", "attention_dropout")


def inference(features, params, training):
    """Computes logits of the target tokens, with teacher forcing.

    Args:
      features: `{"source": int32 [batch, length], "target": int32 [batch, length]}`; see `seq2seq`.
      params: see `default_params`.
      training: True turns dropout on.

    Returns:
      `{"logits": [batch, length, vocab_size]}` of each target token, given those before it.
    """
    source, target = features["source"], features["target"]
    source_segments = seq2seq.segments(source)
    memory = _encode(source, source_segments, params, training)
    segments = seq2seq.segments(target)
    mask = _same_segment(segments, segments)
    causal_mask = tf.linalg.band_part(mask, -1, 0)  # lower triangle
    causal_bias = attention.attention_bias(causal_mask)[:, tf.newaxis]
    memory_mask = _same_segment(segments, source_segments)
    memory_bias = attention.attention_bias(memory_mask)[:, tf.newaxis]
    encodings = _position_encodings(target.shape.as_list()[1], params)
    x = _embed(seq2seq.shifted_right(target), _positions(mask), encodings, params, training)
    x = _decoder(x, causal_bias, _keys_values(memory, params), memory_bias, params, training)
    return {"logits": _logits(x, params)}


def decode(features, params):
    """Searches the most probable target: greedy decoding or beam search, with a key/value cache.

    Args:
      features: `{"source": int32 [batch, length]}`.
      params: see `default_params`.

    Returns:
      `{"target": int32 [batch, length], "score": float32 [batch]}`; see `decoding.search`.
    """
    segments = seq2seq.segments(features["source"])
    memory = _encode(features["source"], segments, params, training=False)
    keys_values = _keys_values(memory, params)
    memory_bias = attention.attention_bias(segments > 0)[:, tf.newaxis, tf.newaxis]
    length, hidden_size = memory.shape.as_list()[1:]
    encodings = _position_encodings(length, params)

    def step(tokens, position, caches):
        """From int32 `[batch, beams]` at `position` to `[batch, beams, vocab_size]`."""
        caches = [attention.KeyValueCache(*cache, position) for cache in caches]
        # Cross-attention treats beams as positions: several queries to the memory of one sentence.
        x = _embed(tokens, position, encodings, params, training=False)
        bias = attention.attention_bias(tf.range(length) <= position)
        x = _decoder(x, bias, keys_values, memory_bias, params, False, caches)
        return _logits(x, params), [(cache.key, cache.value) for cache in caches]

    shape = [params["num_heads"], length, hidden_size // params["num_heads"]]
    empty = tf.zeros([tf.shape(memory)[0], params["beam_size"], *shape], memory.dtype)
    return decoding.search(step, [(empty, empty)] * params["num_layers"], length, params)


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
    encodings = _position_encodings(source.shape.as_list()[1], params)
    x = _embed(source, _positions(mask), encodings, params, training)
    for i in range(params["num_layers"]):
        with tf.compat.v1.variable_scope(f"encoder/layer_{i + 1}"):
            x = _encoder_layer(x, bias, params, training)
    with tf.compat.v1.variable_scope("encoder"):
        return layer_norm(x) if params["pre_norm"] else x


def _encoder_layer(x, bias, params, training):
    """Self-attention and a feed-forward network, each with "Add & Norm" (figure 1, left)."""
    with tf.compat.v1.variable_scope("self_attention"):
        y = attention.self_attention(_pre_norm(x, params), bias, params, training)
        x = _add_and_norm(x, y, params, training)
    with tf.compat.v1.variable_scope("ffn"):
        return _add_and_norm(x, _ffn(_pre_norm(x, params), params), params, training)


def _decoder(x, bias, keys_values, memory_bias, params, training, caches=None):
    """Runs the layers of the decoder.

    Args:
      x: `[batch, length, hidden_size]`, embedded tokens; with caches `[batch, beams, hidden_size]`,
        a token of each beam.
      bias: attention bias of the self-attention, float32.
      keys_values: of the memory, from `_keys_values`.
      memory_bias: attention bias to the memory, float32, broadcast to
        `[batch, num_heads, length, source_length]`.
      params: see `default_params`.
      training: True turns dropout on.
      caches: an `attention.KeyValueCache` per layer, which is updated.

    Returns:
      A tensor of the shape of `x`.
    """
    for i in range(params["num_layers"]):
        cache = caches[i] if caches else None
        with tf.compat.v1.variable_scope(f"decoder/layer_{i + 1}"):
            x = _decoder_layer(x, bias, keys_values[i], memory_bias, params, training, cache)
    with tf.compat.v1.variable_scope("decoder"):
        return layer_norm(x) if params["pre_norm"] else x


def _decoder_layer(x, bias, key_value, memory_bias, params, training, cache):
    """Causal self-attention, cross-attention and a feed-forward network (figure 1, right)."""
    with tf.compat.v1.variable_scope("self_attention"):
        y = attention.self_attention(_pre_norm(x, params), bias, params, training, cache)
        x = _add_and_norm(x, y, params, training)
    with tf.compat.v1.variable_scope("cross_attention"):
        y = _pre_norm(x, params)
        y = attention.cross_attention(y, *key_value, memory_bias, params, training)
        x = _add_and_norm(x, y, params, training)
    with tf.compat.v1.variable_scope("ffn"):
        return _add_and_norm(x, _ffn(_pre_norm(x, params), params), params, training)


def _pre_norm(x, params):
    return layer_norm(x) if params["pre_norm"] else x


def _add_and_norm(x, y, params, training):
    """Residual connection with dropout of the sublayer's output `y`, and post-norm."""
    x += dropout(y, params["dropout"], training)
    return x if params["pre_norm"] else layer_norm(x)


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


def _logits(x, params):
    """Output projection with the embedding, to `[batch, length, vocab_size]`."""
    flat = tf.reshape(x, [-1, params["hidden_size"]])
    logits = tf.matmul(flat, _embedding(params), transpose_b=True)
    return tf.reshape(logits, [-1, x.shape.as_list()[1], params["vocab_size"]])


def _embedding(params):
    """Returns `[vocab_size, hidden_size]`, shared by encoder, decoder and output projection."""
    initializer = tf.compat.v1.random_normal_initializer(stddev=params["hidden_size"] ** -0.5)
    with tf.compat.v1.variable_scope("embedding", reuse=tf.compat.v1.AUTO_REUSE):
        shape = [params["vocab_size"], params["hidden_size"]]
        return tf.compat.v1.get_variable("weights", shape, params["precision"], initializer)


def _position_encodings(length, params):
    """Returns sinusoidal position encodings (section 3.5), `[length, hidden_size]`."""
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


def _check_warm_start(checkpoint, include, params, pipeline):
    """Raises `ModelError` for a checkpoint of another family."""
    del include, params, pipeline
    checkpoint_families.check(checkpoint, "transformer")


MODEL = seq2seq.model(
    "transformer",
    default_params,
    inference,
    decode,
    check_params,
    presets={"size": SIZES},
    check_warm_start=_check_warm_start,
)
