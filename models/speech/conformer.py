"""Conformer encoder (Gulati et al. 2020, arXiv:2005.08100).

Two convolutions of stride 2, then blocks of half a feed-forward layer, self-attention with relative
positions (Dai et al. 2019, arXiv:1901.02860), a convolution module and half a feed-forward layer.
The convolution module has layer norm instead of the paper's batch norm: its batches per core are
small, and layer norm does not depend on how examples are distributed over cores or padded.

Sizes: batch; frames, those after the subsampling; hidden_size; head_size = hidden_size / num_heads.
Frames after the end of a recording are 0 before every convolution and masked in the attention, so
that they have no effect.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from models.layers import fusion
from models.layers.attention import attention_bias, project_output
from models.layers.dropout import dropout
from models.layers.normalization import layer_norm
from models.model import ModelError, check_fractions, check_positive
from models.speech.log_mel import frame_mask

# small and medium: table 1 of the paper.
SIZES = {
    "tiny": {"num_blocks": 4, "hidden_size": 96, "num_heads": 4},
    "small": {"num_blocks": 16, "hidden_size": 144, "num_heads": 4},
    "medium": {"num_blocks": 16, "hidden_size": 256, "num_heads": 4},
}


def default_params():
    """Returns the hyperparameters of `encode`."""
    return {
        "size": "small",  # one of SIZES, which sets:
        **SIZES["small"],
        "kernel_size": 31,  # of the depthwise convolutions, frames; odd
        "feed_forward_factor": 4,  # units of a feed-forward layer: so many times hidden_size
        "dropout": 0.1,
        "attention_dropout": 0.1,  # of the attention weights
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_fractions(params, "dropout", "attention_dropout")
    check_positive(params, *SIZES["small"], "kernel_size", "feed_forward_factor")
    if params["hidden_size"] % params["num_heads"] or params["hidden_size"] % 2:
        raise ModelError(
            f"hidden_size={params['hidden_size']} must be even and a multiple of "
            f"num_heads={params['num_heads']}"
        )
    if not params["kernel_size"] % 2:
        raise ModelError(f"kernel_size={params['kernel_size']} must be odd")


def num_frames_after(num_frames):
    """Returns int32 `[batch]`, frames after the subsampling."""
    for _ in range(2):
        num_frames = (num_frames + 1) // 2
    return num_frames


def encode(x, num_frames, params, training):
    """Encodes log-mel spectrograms.

    Args:
      x: `[batch, 4 * frames, num_mels]` or up to 3 frames less, float32 or bfloat16; 0 after the
        end.
      num_frames: int32 `[batch]`, frames of `x` in each recording.
      params: see `default_params`.
      training: True turns dropout on.

    Returns:
      `[batch, frames, hidden_size]`, and int32 `[batch]`, frames of each recording.
    """
    with tf.compat.v1.variable_scope("encoder"):
        x, num_frames = _subsample(x, num_frames, params["hidden_size"])
        x = dropout(x, params["dropout"], training)
        frames = x.shape.as_list()[1]
        mask = frame_mask(num_frames, frames)  # [batch, frames]
        positions = tf.constant(relative_positions(frames, params["hidden_size"]), x.dtype)
        for i in range(params["num_blocks"]):
            with tf.compat.v1.variable_scope(f"block_{i}"):
                x = _block(x, mask, positions, params, training)
    return x, num_frames


def _subsample(x, num_frames, hidden_size):
    """Two 3x3 convolutions of stride 2 with ReLU, then a dense layer over channels and bins."""
    x = x[..., tf.newaxis]
    for i in range(2):
        # Padded alike for even and odd lengths, unlike "same": frame t covers 2t - 1 to 2t + 1.
        x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
        x = tf.compat.v1.layers.conv2d(
            x, hidden_size, 3, 2, activation=tf.nn.relu, name=f"subsampling_{i}"
        )
        num_frames = (num_frames + 1) // 2
        mask = tf.cast(frame_mask(num_frames, x.shape.as_list()[1]), x.dtype)
        x *= mask[:, :, tf.newaxis, tf.newaxis]
    frames, bins, channels = x.shape.as_list()[1:]
    x = tf.reshape(x, [-1, frames, bins * channels])
    return _dense(x, hidden_size, "projection"), num_frames


def _block(x, mask, positions, params, training):
    def residual(function, name, factor=1.0):
        with tf.compat.v1.variable_scope(name):
            y = function(layer_norm(x))
            return x + factor * dropout(y, params["dropout"], training)

    def feed_forward(y):
        y = _dense(y, params["feed_forward_factor"] * params["hidden_size"], "hidden")
        y = fusion.fuse(tf.nn.swish, y)
        return _dense(dropout(y, params["dropout"], training), params["hidden_size"], "output")

    x = residual(feed_forward, "feed_forward_0", 0.5)
    x = residual(
        lambda y: relative_self_attention(y, mask, positions, params, training), "attention"
    )
    x = residual(lambda y: _convolution(y, mask, params), "convolution")
    x = residual(feed_forward, "feed_forward_1", 0.5)
    return layer_norm(x)


def _convolution(x, mask, params):
    """Convolution module: pointwise, gated linear unit, depthwise, layer norm, swish, pointwise."""
    size = params["hidden_size"]
    values, gates = tf.split(_dense(x, 2 * size, "pointwise_0"), 2, axis=-1)
    mask = tf.cast(mask, x.dtype)[..., tf.newaxis]
    x = fusion.fuse(_gated, values, gates, mask)
    kernel = tf.compat.v1.get_variable(
        "depthwise_kernel", [params["kernel_size"], 1, size, 1], x.dtype
    )
    x = tf.nn.depthwise_conv2d(x[:, :, tf.newaxis], kernel, [1, 1, 1, 1], "SAME")[:, :, 0]
    x = fusion.fuse(tf.nn.swish, layer_norm(x, "norm"))
    return _dense(x, size, "pointwise_1")


def _gated(values, gates, mask):
    return values * tf.sigmoid(gates) * mask


def relative_self_attention(x, mask, positions, params, training):
    """Multi-head self-attention with relative positions (Dai et al. 2019, section 3.3).

    The score of query i and key j is `(q_i + u) . k_j + (q_i + v) . r_{i - j}`, with learned biases
    u and v of each head and a projection r of sinusoids.

    Args:
      x: `[batch, frames, hidden_size]`.
      mask: bool `[batch, frames]`, keys to attend to.
      positions: `[2 * frames - 1, hidden_size]`, of `relative_positions`.
      params: "num_heads", "attention_dropout".
      training: True turns dropout on.

    Returns:
      `[batch, frames, hidden_size]`.
    """
    size = x.shape.as_list()[-1]
    heads = params["num_heads"]
    head_size = size // heads

    def split(y):  # [..., length, size] to [..., heads, length, head_size]
        shape = y.shape.as_list()[:-1]
        y = tf.reshape(y, [-1 if n is None else n for n in shape] + [heads, head_size])
        return tf.transpose(y, [0, 2, 1, 3] if len(shape) == 2 else [1, 0, 2])

    query, key, value = (split(_dense(x, size, name)) for name in ("query", "key", "value"))
    relative = split(_dense(positions, size, "relative", use_bias=False))
    content_bias, position_bias = (
        tf.compat.v1.get_variable(
            name, [heads, 1, head_size], x.dtype, initializer=tf.zeros_initializer()
        )
        for name in ("content_bias", "position_bias")
    )
    scores = tf.matmul(query + content_bias, key, transpose_b=True)
    # One matrix product for all examples.
    by_distance = tf.einsum("bhtd,hpd->bhtp", query + position_bias, relative)
    scores += _shift_relative(by_distance)
    scores = tf.cast(scores, tf.float32) * head_size**-0.5
    bias = attention_bias(mask)[:, tf.newaxis, tf.newaxis]
    weights = tf.cast(tf.nn.softmax(scores + bias), x.dtype)
    weights = dropout(weights, params["attention_dropout"], training)
    return project_output(tf.matmul(weights, value), "output")


def relative_positions(frames: int, size: int) -> np.ndarray:
    """Returns sinusoids of the distances frames - 1 to 1 - frames, `[2 * frames - 1, size]`."""
    distances = np.arange(frames - 1, -frames, -1)[:, np.newaxis]
    rates = 10000.0 ** -(np.arange(0, size, 2) / size)
    return np.concatenate([np.sin(distances * rates), np.cos(distances * rates)], axis=1)


def _shift_relative(scores):
    """Returns `[batch, heads, t, t]`: entry (i, j) is that of distance i - j.

    Args:
      scores: `[batch, heads, t, 2 * t - 1]`, by distance from t - 1 to 1 - t.
    """
    heads, frames, width = scores.shape.as_list()[1:]
    # Row i begins at distance i: with one more column, rows of one less shift by one each.
    scores = tf.pad(scores, [[0, 0], [0, 0], [0, 0], [1, 0]])
    scores = tf.reshape(scores, [-1, heads, width + 1, frames])[:, :, 1:]
    return tf.reshape(scores, [-1, heads, frames, width])[..., :frames]


def _dense(x, units, name, use_bias=True):
    return tf.compat.v1.layers.dense(x, units, use_bias=use_bias, name=name)
