"""The Transformer of `models/text/transformer.py` with Keras layers."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from common.constants import EOS


def build(params, max_length):
    """Returns a Keras model from source and target rows to logits.

    It is the post-norm Transformer of the paper: `pre_norm` is ignored.

    Args:
      params: hyperparameters of a `transformer_*` model.
      max_length: length of a row.
    """
    layers = tf.keras.layers
    source = layers.Input([max_length], dtype="int32", name="source")
    target = layers.Input([max_length], dtype="int32", name="target")
    size = params["hidden_size"]
    embedding = layers.Embedding(params["vocab_size"], size, name="embedding")
    source_segments, target_segments = _segments(source), _segments(target)

    same = _same(source_segments, source_segments)
    x = _embed(embedding, source, same, params)
    for i in range(params["num_layers"]):
        x = _attention(x, x, same, params, f"encoder_{i + 1}_self")
        x = _ffn(x, params, f"encoder_{i + 1}_ffn")
    memory = x

    same = _same(target_segments, target_segments)
    earlier = tf.linalg.band_part(same, -1, 0)
    of_source = _same(target_segments, source_segments)
    shifted = tf.pad(target[:, :-1], [[0, 0], [1, 0]], constant_values=EOS)
    x = _embed(embedding, shifted, same, params)
    for i in range(params["num_layers"]):
        x = _attention(x, x, earlier, params, f"decoder_{i + 1}_self")
        x = _attention(x, memory, of_source, params, f"decoder_{i + 1}_cross")
        x = _ffn(x, params, f"decoder_{i + 1}_ffn")
    logits = tf.keras.layers.Lambda(
        lambda x: tf.matmul(x, tf.cast(embedding.embeddings, x.dtype), transpose_b=True),
        name="logits",
    )(x)
    return tf.keras.Model({"source": source, "target": target}, logits)


def loss(label_smoothing):
    """Returns the mean cross-entropy per token as a Keras loss, `(labels, logits) -> scalar`."""

    def masked_mean(labels, logits):
        one_hot = tf.one_hot(tf.cast(labels, tf.int32), logits.shape.as_list()[-1])
        losses = tf.keras.losses.categorical_crossentropy(
            one_hot, logits, from_logits=True, label_smoothing=label_smoothing
        )
        mask = tf.cast(tf.not_equal(labels, 0), losses.dtype)
        return tf.reduce_sum(losses * mask) / tf.reduce_sum(mask)

    return masked_mean


def _segments(tokens):
    ends = tf.cast(tf.equal(tokens, EOS), tf.int32)
    return (1 + tf.cumsum(ends, axis=1, exclusive=True)) * tf.cast(
        tf.not_equal(tokens, 0), tf.int32
    )


def _same(segments, others):
    return tf.equal(segments[:, :, tf.newaxis], others[:, tf.newaxis])


def _embed(embedding, tokens, same, params):
    half = params["hidden_size"] // 2
    positions = tf.reduce_sum(tf.cast(tf.linalg.band_part(same, -1, 0), tf.int32), axis=2) - 1
    rates = np.float32(10000.0 ** -(np.arange(half) / half))
    angles = tf.cast(positions, tf.float32)[..., tf.newaxis] * rates
    x = embedding(tokens) * params["hidden_size"] ** 0.5
    x += tf.cast(tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1), x.dtype)
    return tf.keras.layers.Dropout(params["dropout"])(x)


def _attention(x, memory, mask, params, name):
    heads = params["num_heads"]
    layer = tf.keras.layers.MultiHeadAttention(
        heads, params["hidden_size"] // heads, dropout=params["attention_dropout"], name=name
    )
    return _add(x, layer(x, memory, attention_mask=mask), params, name)


def _ffn(x, params, name):
    hidden = tf.keras.layers.Dense(params["ffn_size"], "relu", name=f"{name}_hidden")(x)
    added = tf.keras.layers.Dense(params["hidden_size"], name=f"{name}_output")(hidden)
    return _add(x, added, params, name)


def _add(x, added, params, name):
    x += tf.keras.layers.Dropout(params["dropout"])(added)
    return tf.keras.layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm")(x)
