"""BERT encoder (Devlin et al. 2018, arXiv:1810.04805).

    sequence_output = encode(features, params, training=True)  # [batch, length, hidden_size]
    pooled_output = pool(sequence_output, params)  # [batch, hidden_size]
    logits = project(pooled_output, num_classes, params)  # [batch, num_classes]

Variables have the names and shapes of google-research/bert, so that its released checkpoints can be
fine-tuned as they are, and what this package trains loads in that code and in converters that were
written for it. The heads are in `bert_pretraining`, `bert_classifier`, `bert_regressor`,
`bert_token_classifier`, `bert_squad` and `bert_embedder`; `bert_model` makes a model of a head.
`encoders` lists the encoders of other families that these heads can have.

Sizes: batch; length, tokens of a row; hidden_size. Features of all tasks:

    input_ids    int32 [batch, length]   WordPiece ids; [CLS] first, [SEP] after each text
    input_mask   int32 [batch, length]   1 for a token, 0 for padding
    segment_ids  int32 [batch, length]   0 for the first text, 1 for the second
"""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from models.layers import attention, device, fusion, normalization
from models.layers.dropout import dropout
from models.layers.recompute import recompute
from models.model import ModelError, check_fractions, check_positive

SCOPE = "bert"  # of the variables of the encoder
QUERY = f"{SCOPE}/encoder/layer_0/attention/self/query/kernel"
FEATURES = ("input_ids", "input_mask", "segment_ids")
# Sizes of google-research/bert; minilm is that of sentence-transformers' all-MiniLM-L6.
SIZES = {
    "tiny": {"num_layers": 2, "hidden_size": 128, "num_heads": 2, "ffn_size": 512},
    "mini": {"num_layers": 4, "hidden_size": 256, "num_heads": 4, "ffn_size": 1024},
    "minilm": {"num_layers": 6, "hidden_size": 384, "num_heads": 12, "ffn_size": 1536},
    "small": {"num_layers": 4, "hidden_size": 512, "num_heads": 8, "ffn_size": 2048},
    "medium": {"num_layers": 8, "hidden_size": 512, "num_heads": 8, "ffn_size": 2048},
    "base": {"num_layers": 12, "hidden_size": 768, "num_heads": 12, "ffn_size": 3072},
    "large": {"num_layers": 24, "hidden_size": 1024, "num_heads": 16, "ffn_size": 4096},
}
# A file may have any number: larger ones are refused before anything is built.
_LARGEST = {
    "num_layers": 1000,
    "hidden_size": 1 << 16,
    "num_heads": 1 << 16,
    "ffn_size": 1 << 20,
    "vocab_size": 10_000_000,
    "max_positions": 1 << 20,
    "type_vocab_size": 1 << 20,
}
_MOST_WEIGHTS = 1 << 34
_NORM_EPSILON = 1e-12
_GELU_SLOPE = (2 / np.pi) ** 0.5


def default_params():
    """Returns the hyperparameters of the encoder."""
    return {
        "size": "base",  # one of `encoders.SIZES`, which sets:
        **SIZES["base"],
        "family": "bert",  # one of `encoders.FAMILIES`
        "embedding_size": 0,  # columns of the embeddings; 0: hidden_size
        "vocab_size": 30522,  # set by the data set
        "max_positions": 512,  # rows of the position embeddings: the longest row of tokens
        "type_vocab_size": 2,  # rows of the token type embeddings
        "dropout": 0.1,  # of embeddings, sublayers and the pooled output
        "attention_dropout": 0.1,  # of attention weights
        "recompute": False,  # True computes layers again in the backward pass, for less memory
        "initializer_range": 0.02,  # standard deviation of the truncated normal initializer
        "precision": "float32",  # or bfloat16, of the layers; set by --precision
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_positive(params, *_LARGEST)
    for name, largest in _LARGEST.items():
        if params[name] > largest:
            raise ModelError(f"{name}={params[name]} must be at most {largest}")
    if params["hidden_size"] % params["num_heads"]:
        raise ModelError(
            f"hidden_size={params['hidden_size']} must be a multiple of "
            f"num_heads={params['num_heads']}"
        )
    rows = params["vocab_size"] + params["max_positions"] + params["type_vocab_size"]
    rows += params["num_layers"] * (4 * params["hidden_size"] + 2 * params["ffn_size"])
    if rows * params["hidden_size"] > _MOST_WEIGHTS:
        sizes = ", ".join(f"{name}={params[name]}" for name in _LARGEST)
        raise ModelError(f"{sizes}: more than {_MOST_WEIGHTS} weights")
    if not 0 < params["initializer_range"] < float("inf"):
        raise ModelError(
            f"initializer_range={params['initializer_range']} must be above 0 and finite"
        )
    check_fractions(params, "dropout", "attention_dropout")
    if params.get("max_length", 0) > params["max_positions"]:
        raise ModelError(
            f"the data set has rows of {params['max_length']} tokens, but the model "
            f"max_positions={params['max_positions']}: prepare the data with a smaller --max_length"
        )


def pad_to_max_length(values, padding, params):
    """Returns `[batch, length, ...]` as `[batch, max_length, ...]`, which dynamic padding shortens.

    Args:
      values: tensor `[batch, length, ...]`; returned as it is if `length` is static.
      padding: scalar, the value of what is added.
      params: has the `max_length` of the data set.
    """
    if values.shape.as_list()[1] is not None:
        return values
    missing = params["max_length"] - tf.shape(values)[1]
    others = values.shape.as_list()[2:]
    paddings = [[0, 0], [0, missing], *([0, 0] for _ in others)]
    padded = tf.pad(values, paddings, constant_values=padding)
    return tf.ensure_shape(padded, [None, params["max_length"], *others])


def initializer(params):
    """Returns the initializer of kernels and embeddings."""
    return tf.compat.v1.truncated_normal_initializer(stddev=params["initializer_range"])


def encode(features, params, training):
    """Runs the encoder, in the variable scope "bert".

    Args:
      features: see `FEATURES`; others are ignored.
      params: see `default_params`.
      training: True turns dropout on.

    Returns:
      The sequence output, `[batch, length, hidden_size]` of `params["precision"]`.
    """
    return encode_layers(features, params, training)[-1]


def encode_layers(features, params, training):
    """Runs the encoder as `encode`; returns the output of each layer, the first one first."""
    with tf.compat.v1.variable_scope("bert", initializer=initializer(params)):
        x = embed(features, params, training)
        return run_layers(x, padding_bias(features), params, training, gelu)


def run_layers(x, bias, params, training, activation):
    """Runs the layers on embeddings, in the variable scopes "encoder/layer_0", ...

    Args:
      x: `[batch, length, hidden_size]`.
      bias: from `padding_bias`.
      params: see `default_params`.
      training: True turns dropout on.
      activation: of the feed-forward networks.

    Returns:
      The output of each layer, `[batch, length, hidden_size]`.
    """
    layer = functools.partial(
        _layer, bias=bias, params=params, training=training, activation=activation
    )
    layers = []
    for i in range(params["num_layers"]):
        with tf.compat.v1.variable_scope(f"encoder/layer_{i}"):
            x = recompute(layer, x, params) if training and params["recompute"] else layer(x)
            layers.append(x)
    return layers


def padding_bias(features):
    """Returns the attention bias that masks padding, float32 `[batch, 1, 1, length]`."""
    mask = tf.cast(features["input_mask"], tf.bool)[:, tf.newaxis, tf.newaxis]
    return attention.attention_bias(mask)


def pool(sequence_output, params):
    """Returns the pooled output, `[batch, hidden_size]`: a dense layer with tanh of [CLS].

    Args:
      sequence_output: `[batch, length, hidden_size]`, from `encode`.
      params: see `default_params`.
    """
    with tf.compat.v1.variable_scope("bert/pooler", initializer=initializer(params)):
        return tf.compat.v1.layers.dense(
            sequence_output[:, 0], params["hidden_size"], tf.tanh, name="dense"
        )


def project(x, num_outputs, params):
    """Returns `x output_weights^T + output_bias`, the last layer of every head but that of tokens.

    Args:
      x: `[batch, hidden_size]` or `[batch, length, hidden_size]`.
      num_outputs: number of logits.
      params: see `default_params`.

    Returns:
      `[batch, num_outputs]` or `[batch, length, num_outputs]` of the dtype of `x`.
    """
    hidden_size = params["hidden_size"]
    weights = tf.compat.v1.get_variable(
        "output_weights", [num_outputs, hidden_size], x.dtype, initializer=initializer(params)
    )
    bias = tf.compat.v1.get_variable(
        "output_bias", [num_outputs], x.dtype, initializer=tf.zeros_initializer()
    )
    rows = tf.reshape(x, [-1, hidden_size])
    logits = tf.nn.bias_add(tf.matmul(rows, weights, transpose_b=True), bias)
    return logits if x.shape.rank == 2 else tf.reshape(logits, [-1, _length(x), num_outputs])


def layer_scopes(params):
    """Returns the variable scopes of the embeddings and of each layer."""
    layers = (f"bert/encoder/layer_{i}" for i in range(params["num_layers"]))
    return ["bert/embeddings", *layers]


def word_embeddings(params):
    """Returns the word embeddings, `[vocab_size, hidden_size]`; call it in the root scope."""
    with tf.compat.v1.variable_scope("bert/embeddings", reuse=tf.compat.v1.AUTO_REUSE):
        return _embedding("word_embeddings", params["vocab_size"], params)


def gelu(x):
    """Gaussian error linear unit, the tanh form (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""
    if device.is_tpu():
        return tf.nn.gelu(x, approximate=True)
    return fusion.fuse(_gelu, x)


def _gelu(x):
    # tf.nn.gelu computes the cube with tf.pow, which is slow on a CPU.
    values = tf.cast(x, tf.float32)
    u = values * (_GELU_SLOPE + 0.044715 * _GELU_SLOPE * tf.square(values))
    return tf.cast(values * (0.5 + 0.5 * tf.tanh(u)), x.dtype)


def layer_norm(x, name="LayerNorm"):
    """Layer norm with the name and the epsilon of google-research/bert."""
    return normalization.layer_norm(x, name, _NORM_EPSILON)


def embed(features, params, training):
    """Sums word, token type and position embeddings, in the variable scope "embeddings".

    Returns:
      `[batch, length, columns]`: embedding_size, or hidden_size if that is 0.
    """
    with tf.compat.v1.variable_scope("embeddings"):
        x = _word_rows(features["input_ids"], params)
        types = _embedding("token_type_embeddings", params["type_vocab_size"], params)
        positions = _embedding("position_embeddings", params["max_positions"], params)
        # A product with one-hot rows: the gradient of a gather adds row after row into few rows.
        one_hot = tf.one_hot(features["segment_ids"], params["type_vocab_size"], dtype=x.dtype)
        x += tf.tensordot(one_hot, types, 1)
        x += positions[: _length(x)]
        return dropout(layer_norm(x), params["dropout"], training)


def _word_rows(input_ids, params):
    # Rows of the float32 variable: the cast of all rows would be kept for both users of the table.
    rows = _embedding("word_embeddings", params["vocab_size"], {**params, "precision": "float32"})
    return tf.cast(tf.gather(rows, input_ids), params["precision"])


def _layer(x, bias, params, training, activation):
    """One layer of the encoder: self-attention and a feed-forward network, each with post-norm.

    Args:
      x: `[batch, length, hidden_size]`.
      bias: attention bias, float32 `[batch, 1, 1, length]`.
      params: see `default_params`.
      training: True turns dropout on.
      activation: of the feed-forward network.

    Returns:
      `[batch, length, hidden_size]`.
    """
    with tf.compat.v1.variable_scope("attention"):
        with tf.compat.v1.variable_scope("self"):
            query, key, value = attention.project(x, ("query", "key", "value"), params)
        heads = attention.attend(query, key, value, bias, params["attention_dropout"], training)
        with tf.compat.v1.variable_scope("output"):
            attended = attention.project_output(heads, "dense")
            x = layer_norm(x + dropout(attended, params["dropout"], training))
    with tf.compat.v1.variable_scope("intermediate"):
        hidden = tf.compat.v1.layers.dense(x, params["ffn_size"], activation, name="dense")
    with tf.compat.v1.variable_scope("output"):
        hidden = tf.compat.v1.layers.dense(hidden, params["hidden_size"], name="dense")
        return layer_norm(x + dropout(hidden, params["dropout"], training))


def _length(x):
    """Returns the length of `[batch, length, ...]`, an int if it is static."""
    length = x.shape.as_list()[1]
    return tf.shape(x)[1] if length is None else length


def _embedding(name, num_rows, params):
    return tf.compat.v1.get_variable(
        name,
        [num_rows, params["embedding_size"] or params["hidden_size"]],
        dtype=params["precision"],
        initializer=initializer(params),
    )
