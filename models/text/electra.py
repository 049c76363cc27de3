"""ELECTRA discriminator (Clark et al. 2020, arXiv:2003.10555).

It has the layers of BERT. It differs from `bert` in the exact form of GELU, in the output of [CLS]
without a pooler, and in embeddings of embedding_size columns, which a dense layer projects to
hidden_size (small).

Variables have the names and shapes of google-research/electra, so that its released checkpoints can
be fine-tuned as they are, and what this package trains loads in that code. The variables of
pre-training in a release, `generator/...` and `discriminator_predictions/...`, are not used.
"""

from __future__ import annotations

import tensorflow as tf

from models.layers import fusion
from models.text import bert

SCOPE = "electra"  # of the variables of the encoder
QUERY = f"{SCOPE}/encoder/layer_0/attention/self/query/kernel"


def _size(num_layers, hidden_size, embedding_size=0):
    return {
        "family": "electra",
        "embedding_size": embedding_size,
        "num_layers": num_layers,
        "hidden_size": hidden_size,
        "num_heads": hidden_size // 64,
        "ffn_size": 4 * hidden_size,
    }


SIZES = {
    "electra_small": _size(12, 256, 128),
    "electra_base": _size(12, 768),
    "electra_large": _size(24, 1024),
}


def encode_layers(features, params, training):
    """Runs the encoder, in the variable scope "electra", as `bert.encode_layers`."""
    with tf.compat.v1.variable_scope("electra", initializer=bert.initializer(params)):
        x = bert.embed(features, params, training)
        if x.shape[-1] != params["hidden_size"]:
            x = tf.compat.v1.layers.dense(x, params["hidden_size"], name="embeddings_project")
        return bert.run_layers(x, bert.padding_bias(features), params, training, gelu)


def pool(sequence_output, params):
    """Returns the output of [CLS], `[batch, hidden_size]`."""
    del params
    return sequence_output[:, 0]


def layer_scopes(params):
    """Returns the variable scopes of the embeddings and of each layer."""
    layers = (f"electra/encoder/layer_{i}" for i in range(params["num_layers"]))
    return ["electra/embeddings(_project)?", *layers]


def gelu(x):
    """Gaussian error linear unit, the exact form (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""
    return fusion.fuse(_gelu, x)


def _gelu(x):
    values = tf.cast(x, tf.float32)
    return tf.cast(0.5 * values * (1.0 + tf.math.erf(values * 0.5**0.5)), x.dtype)
