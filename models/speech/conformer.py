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

from models.layers import dense, fusion
from models.layers.attention import attend, attention_bias, project, project_output
from models.layers.dropout import dropout
from models.layers.normalization import layer_norm
from models.layers.subsampling import conv_subsampling
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
        positions = sinusoids(frames, params["hidden_size"])
        for i in range(params["num_blocks"]):
            with tf.compat.v1.variable_scope(f"block_{i}"):
                x = _block(x, mask, positions, params, training)
    return x, num_frames


def _subsample(x, num_frames, hidden_size):
    """Two 3x3 convolutions of stride 2 with ReLU, then a dense layer over channels and bins."""
    masks = []
    for i in (1, 2):
        num_frames = (num_frames + 1) // 2
        mask = frame_mask(num_frames, -(-x.shape.as_list()[1] // 2**i))
        masks.append(tf.cast(mask, x.dtype))
    x = conv_subsampling(x, masks, hidden_size)
    bins, channels = x.shape.as_list()[2:]
    kernel, bias = dense.kernel_and_bias("projection", [bins * channels, hidden_size], x.dtype)
    kernel = tf.reshape(kernel, [bins, channels, hidden_size])
    return tf.einsum("btfc,fcd->btd", x, kernel) + bias, num_frames


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

    The score of query i and key j is `(q_i + u) . k_j + (q_i + v) . W s_{i - j}`, with learned
    biases u and v of each head and a projection W of sinusoids s. The sine and cosine of a
    difference are products of those of i and of j, so that the second term is a product of s_j with
    a vector that depends on i alone (Dai et al. 2020, arXiv:2006.03236, appendix A): no scores by
    distance have to be computed and shifted.

    Args:
      x: `[batch, frames, hidden_size]`.
      mask: bool `[batch, frames]`, keys to attend to.
      positions: `(sines, cosines)`, of `sinusoids`.
      params: "num_heads", "attention_dropout".
      training: True turns dropout on.

    Returns:
      `[batch, frames, hidden_size]`.
    """
    _, frames, size = x.shape.as_list()
    heads = params["num_heads"]
    head_size = size // heads
    query, key, value = project(x, ("query", "key", "value"), params)
    with tf.compat.v1.variable_scope("relative"):
        relative = tf.compat.v1.get_variable("kernel", [size, size], x.dtype)
    content_bias, position_bias = (
        tf.compat.v1.get_variable(
            name, [heads, 1, head_size], x.dtype, initializer=tf.zeros_initializer()
        )
        for name in ("content_bias", "position_bias")
    )
    of_sines, of_cosines = (
        tf.einsum("bhtd,chd->bhtc", query + position_bias, kernel)
        for kernel in tf.split(tf.reshape(relative, [size, heads, head_size]), 2)
    )
    # sin(i - j) = sin i cos j - cos i sin j, cos(i - j) = cos i cos j + sin i sin j
    scale = head_size**-0.5
    sines, cosines = (tf.constant(scale * values, x.dtype) for values in positions)
    to_cosines = of_sines * sines + of_cosines * cosines
    to_sines = of_cosines * sines - of_sines * cosines
    query = tf.concat([scale * (query + content_bias), to_cosines, to_sines], axis=-1)
    of_key = tf.constant(np.concatenate(positions[::-1], axis=1), x.dtype)
    shape = tf.concat([tf.shape(key)[:2], [frames, size]], axis=0)
    key = tf.concat([key, tf.broadcast_to(of_key, shape)], axis=-1)
    bias = attention_bias(mask)[:, tf.newaxis, tf.newaxis]
    rate = params["attention_dropout"]
    attended = attend(query, key, value, bias, rate, training, is_scaled=True)
    return project_output(attended, "output")


def sinusoids(frames: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns sines and cosines of the places 0 to frames - 1, each `[frames, size / 2]`."""
    angles = np.arange(frames)[:, np.newaxis] * 10000.0 ** -(np.arange(0, size, 2) / size)
    return np.sin(angles), np.cos(angles)


def _dense(x, units, name, use_bias=True):
    return tf.compat.v1.layers.dense(x, units, use_bias=use_bias, name=name)
