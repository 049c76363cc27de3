"""ALBERT encoder (Lan et al. 2019, arXiv:1909.11942): BERT with few weights.

Factorized embeddings (3.1): embedding_size columns, projected to hidden_size. One layer (3.1,
cross-layer parameter sharing), which runs num_layers times. The rest is that of `bert`: post-norm,
the tanh form of GELU, a pooler.

Variables have the names and shapes of google-research/albert, so that its released checkpoints can
be fine-tuned as they are, and what this package trains loads in that code.
"""

from __future__ import annotations

import functools

import tensorflow as tf

from models.layers import attention
from models.layers.dropout import dropout
from models.layers.recompute import recompute
from models.text import bert

SCOPE = "bert"  # of the variables of the encoder
_NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
_LAYER = "transformer/group_0/inner_group_0"
QUERY = f"bert/encoder/{_LAYER}/attention_1/self/query/kernel"


def _size(num_layers, hidden_size, num_heads):
    return {
        "family": "albert",
        "embedding_size": 128,
        "num_layers": num_layers,
        "hidden_size": hidden_size,
        "num_heads": num_heads,
        "ffn_size": 4 * hidden_size,
    }


_BASE, _LARGE = _size(12, 768, 12), _size(24, 1024, 16)
_XLARGE, _XXLARGE = _size(24, 2048, 16), _size(12, 4096, 64)
# The releases, which differ in their training and in the dropout of their configuration.
SIZES = {
    "albert_base_v1": _BASE,
    "albert_large_v1": _LARGE,
    "albert_xlarge_v1": _XLARGE,
    "albert_xxlarge_v1": {**_XXLARGE, **_NO_DROPOUT},
    "albert_base_v2": {**_BASE, **_NO_DROPOUT},
    "albert_large_v2": {**_LARGE, **_NO_DROPOUT},
    "albert_xlarge_v2": {**_XLARGE, **_NO_DROPOUT},
    "albert_xxlarge_v2": {**_XXLARGE, **_NO_DROPOUT},
}


def encode_layers(features, params, training):
    """Runs the encoder, in the variable scope "bert", as `bert.encode_layers`."""
    layer = functools.partial(
        _layer, bias=bert.padding_bias(features), params=params, training=training
    )
    with tf.compat.v1.variable_scope("bert", initializer=bert.initializer(params)):
        x = bert.embed(features, params, training)
        layers = []
        with tf.compat.v1.variable_scope("encoder"):
            if x.shape[-1] != params["hidden_size"]:
                size, name = params["hidden_size"], "embedding_hidden_mapping_in"
                x = tf.compat.v1.layers.dense(x, size, name=name)
            for _ in range(params["num_layers"]):
                with tf.compat.v1.variable_scope(_LAYER, reuse=tf.compat.v1.AUTO_REUSE):
                    again = training and params["recompute"]
                    x = recompute(layer, x, params) if again else layer(x)
                    layers.append(x)
    return layers


pool = bert.pool


def layer_scopes(params):
    """Returns the variable scopes of the embeddings and of the layer."""
    del params
    return ["bert/embeddings", "bert/encoder"]


def _layer(x, bias, params, training):
    """Self-attention and a feed-forward network, each with post-norm; see `bert`."""
    with tf.compat.v1.variable_scope("attention_1"):
        with tf.compat.v1.variable_scope("self"):
            query, key, value = attention.project(x, ("query", "key", "value"), params)
        heads = attention.attend(query, key, value, bias, params["attention_dropout"], training)
        with tf.compat.v1.variable_scope("output"):
            attended = attention.project_output(heads, "dense")
    x = bert.layer_norm(x + dropout(attended, params["dropout"], training))
    with tf.compat.v1.variable_scope("ffn_1/intermediate"):
        hidden = tf.compat.v1.layers.dense(x, params["ffn_size"], bert.gelu, name="dense")
        with tf.compat.v1.variable_scope("output"):
            hidden = tf.compat.v1.layers.dense(hidden, params["hidden_size"], name="dense")
    return bert.layer_norm(x + dropout(hidden, params["dropout"], training), "LayerNorm_1")
