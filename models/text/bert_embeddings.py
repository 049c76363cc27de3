"""Embeddings of texts and tokens by the BERT encoder: no head, so any checkpoint has its variables.

A text is one vector: the mean over its tokens with [CLS] and [SEP] (Sentence-BERT, Reimers and
Gurevych 2019, arXiv:1908.10084), or the output of [CLS]. Or each token is one: contextual
embeddings of chosen layers, concatenated, are the feature-based approach of the BERT paper (5.3).
"""

from __future__ import annotations

import tensorflow as tf

from common.params import Ints
from models.model import ModelError, OtherPredictions
from models.text import bert, encoders

MEAN, CLS, TOKENS = POOLINGS = ("mean", "cls", "tokens")
# Features of a SavedModel signature that takes text: places of the tokens in it.
_PLACES = ("token_starts", "token_ends")


def default_params():
    """Returns the hyperparameters of `embed`."""
    return {
        "pooling": MEAN,  # one of POOLINGS; tokens: no pooling
        # Encoder layers whose outputs are concatenated: 0 the first, -1 the last.
        "embedding_layers": Ints([-1]),
        "normalize_embeddings": False,  # True divides each embedding by its L2 norm
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    if params["pooling"] not in POOLINGS:
        raise ModelError(f"pooling={params['pooling']} must be one of {', '.join(POOLINGS)}")
    layers, count = params["embedding_layers"], params["num_layers"]
    if not layers or not all(-count <= layer < count for layer in layers):
        raise ModelError(
            f"embedding_layers={layers} must be layers from {-count} to {count - 1}, such as [-1]"
        )


def embed(features, params, training):
    """Computes the embedding of each row, or of each of its tokens.

    Args:
      features: see `bert.FEATURES`; others are ignored.
      params: see `default_params` and `bert.default_params`.
      training: True turns dropout on.

    Returns:
      float32 `[batch, width]`, with pooling "tokens" `[batch, length, width]`. The width is
      hidden_size for each of `embedding_layers`.
    """
    layers = encoders.encode_layers(features, params, training)
    x = tf.concat([layers[i] for i in params["embedding_layers"]], axis=-1)
    x = tf.cast(x, tf.float32)  # a mean over hundreds of tokens needs more than bfloat16
    if params["pooling"] == CLS:
        x = x[:, 0]
    elif params["pooling"] == MEAN:
        mask = tf.cast(features["input_mask"], tf.float32)[..., tf.newaxis]  # [batch, length, 1]
        x = tf.math.divide_no_nan(tf.reduce_sum(x * mask, axis=1), tf.reduce_sum(mask, axis=1))
    return tf.math.l2_normalize(x, axis=-1) if params["normalize_embeddings"] else x


def _decode(features, params):
    return {"embeddings": embed(features, params, training=False)}


def _predictions(features, outputs, params):
    """Returns the embeddings of rows or tokens.

    Returns:
      `{"embeddings": float32 [batch, width]}`. With pooling "tokens" `{"token_embeddings": float32
      [batch, max_length, width], "token_ids": int32 [batch, max_length], "num_tokens": int32
      [batch]}`, 0 and the id of padding after the last token; also "token_starts" and "token_ends",
      int32 `[batch, max_length]`, if they are features.
    """
    embeddings = outputs["embeddings"]
    if params["pooling"] != TOKENS:
        return {"embeddings": embeddings}
    mask = features["input_mask"]
    embeddings *= tf.cast(mask, tf.float32)[..., tf.newaxis]
    return {
        "token_embeddings": bert.pad_to_max_length(embeddings, 0.0, params),
        "token_ids": bert.pad_to_max_length(features["input_ids"], 0, params),
        "num_tokens": tf.reduce_sum(mask, axis=1),
        **{name: features[name] for name in _PLACES if name in features},
    }


PREDICTIONS = OtherPredictions(_decode, _predictions)
