"""MobileNet v1 (Howard et al. 2017, arXiv:1704.04861) and v2 (Sandler et al. 2018, 1801.04381).

Scopes: `stem`, `block_1` ..., `head` (v2), `logits`; layers as in `tf.keras.applications`.
"""

from __future__ import annotations

import tensorflow as tf

from common.params import Floats
from models.layers import normalization
from models.layers.conv_batch_norm import conv2d_batch_norm
from models.layers.convolution import atrous, depthwise_conv2d
from models.model import ModelError, check_fractions
from models.vision import classifier

# (channels at width 1, strides) of each block.
_V1_BLOCKS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1),
    (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip
_V2_BLOCKS = (
    (16, 1), (24, 2), (24, 1), (32, 2), (32, 1), (32, 1), (64, 2), (64, 1), (64, 1), (64, 1),
    (96, 1), (96, 1), (96, 1), (160, 2), (160, 1), (160, 1), (320, 1),
)  # fmt: skip
_EXPANSION = 6  # v2: expansion factor of inverted residuals, 1 in the first block
# As a backbone: name -> hyperparameters.
BACKBONES = {f"mobilenet_v{version}": {"version": version} for version in (1, 2)}


def default_params():
    """Returns the hyperparameters of `inference` and `classification.losses`."""
    return {
        **classifier.default_params(),
        "pixel_mean": Floats([127.5]),
        "pixel_scale": 1 / 127.5,
        **normalization.default_params(momentum=0.99, epsilon=1e-3),
        "version": 2,  # 1 or 2
        "width": 1.0,  # multiplies the channels of every layer
        "dropout": 0.0,  # dropout rate of the pooled features
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    classifier.check_params(params)
    normalization.check_params(params)
    if params["version"] not in (1, 2):
        raise ModelError(f"version={params['version']} must be 1 or 2")
    if not 0.1 <= params["width"] <= 4:
        raise ModelError(f"width={params['width']} must be in [0.1, 4]")
    check_fractions(params, "dropout")


def inference(features, params, training):
    """Computes class logits of images.

    Args:
      features: `{"image": uint8 or float32 [batch, height, width, channels]}`.
      params: see `default_params`.
      training: True turns dropout on, and lets batch norm use batch statistics and update its
        moving averages.

    Returns:
      `{"logits": [batch, num_classes]}` of `params["precision"]`.
    """
    images = classifier.scaled_images(features, params)
    x = feature_maps(images, params, training, levels=[5])[5]
    if params["version"] == 2:
        with tf.compat.v1.variable_scope("head"):
            channels = v2_channels(params["width"])[-1]
            x = tf.nn.relu6(conv2d_batch_norm(x, channels, 1, params, training))
    return {"logits": classifier.pooled_logits(x, params, training)}


def feature_maps(images, params, training, levels, output_stride=32):
    """Computes the feature maps of the blocks before each downsampling, without the head of v2.

    Args:
      images: float32 or bfloat16 `[batch, height, width, channels]`, see
        `classifier.scaled_images`.
      params: see `default_params`.
      training: see `inference`.
      levels: which maps to return, of 1 to 5. Blocks above the last one are not built.
      output_stride: 32, 16 or 8. With 16 or 8 blocks that would exceed it have stride 1, and those
        that follow dilated convolutions (Sandler et al. 2018, section 6.3).

    Returns:
      `{level: [batch, ceil(height / s), ceil(width / s), channels]}` for s = min(2**level,
      output_stride), for images of at least 31x31.
    """
    is_v1 = params["version"] == 1
    channels = v1_channels(params["width"]) if is_v1 else v2_channels(params["width"])[:-1]
    strides = [strides for _, strides in (_V1_BLOCKS if is_v1 else _V2_BLOCKS)]
    with tf.compat.v1.variable_scope("stem"):
        x = tf.nn.relu6(conv2d_batch_norm(images, channels[0], 3, params, training, strides=2))
    plan = zip(channels[1:], strides, atrous(strides, output_stride // 2))
    maps, level = {}, 1
    for i, (filters, halving, (stride, dilation)) in enumerate(plan, start=1):
        level += halving == 2
        if level > max(levels):
            break
        with tf.compat.v1.variable_scope(f"block_{i}"):
            if is_v1:
                x = _separable(x, filters, stride, dilation, params, training)
            else:
                expansion = 1 if i == 1 else _EXPANSION
                x = _inverted_residual(x, filters, stride, dilation, params, training, expansion)
        maps[level] = x
    return {level: maps[level] for level in levels}


def v1_channels(width):
    """Returns the output channels of v1's stem and of each block."""
    return [int(channels * width) for channels in (32, *(channels for channels, _ in _V1_BLOCKS))]


def v2_channels(width):
    """Returns the output channels of v2's stem, of each block and of the head."""
    blocks = [_divisible(int(channels * width)) for channels, _ in _V2_BLOCKS]
    return [_divisible(32 * width), *blocks, _divisible(1280 * max(1.0, width))]


def _separable(x, channels, strides, dilation, params, training):
    """Depthwise separable convolution of v1; arguments as of `_inverted_residual`."""
    # As Keras: pads strided layers after the last row even if that loses a row. Unlike Keras,
    # images below 31x31 are possible and end as a single row.
    x = depthwise_conv2d(x, strides, "after" if strides == 2 else "same", dilation=dilation)
    x = tf.nn.relu6(normalization.batch_norm(x, params, training, "depthwise_norm"))
    names = "pointwise", "pointwise_norm"
    return tf.nn.relu6(conv2d_batch_norm(x, channels, 1, params, training, names=names))


def _inverted_residual(x, channels, strides, dilation, params, training, expansion):
    """Inverted residual with linear bottleneck (Sandler et al. 2018, section 3.3).

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels_in]`.
      channels: number of output channels.
      strides: of the depthwise convolution, 1 or 2.
      dilation: of the depthwise convolution.
      params: see `default_params`.
      training: see `inference`.
      expansion: channels of the depthwise convolution divided by channels_in.

    Returns:
      `[batch, ceil(height / strides), ceil(width / strides), channels]`.
    """
    inputs, channels_in = x, x.shape.as_list()[-1]
    if expansion > 1:
        names, hidden = ("expand", "expand_norm"), expansion * channels_in
        x = tf.nn.relu6(conv2d_batch_norm(x, hidden, 1, params, training, names=names))
    x = depthwise_conv2d(x, strides, dilation=dilation)
    x = tf.nn.relu6(normalization.batch_norm(x, params, training, "depthwise_norm"))
    names = "project", "project_norm"
    x = conv2d_batch_norm(x, channels, 1, params, training, names=names)
    return inputs + x if strides == 1 and channels == channels_in else x


def _divisible(channels):
    """Returns the multiple of 8 nearest to `channels`, but at least 0.9 * channels."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


MODEL = classifier.model("mobilenet", default_params, inference, check_params)
