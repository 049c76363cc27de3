"""EfficientNet (Tan and Le 2019, arXiv:1905.11946) and EfficientNetV2 (2021, arXiv:2104.00298).

    logits = inference({"image": images}, params, training=True)["logits"]

Sizes b0 to b7, v2b0 to v2b3, v2s, v2m and v2l. Scopes: `stem`, `block_1` ..., `head`, `logits`;
layers as in `tf.keras.applications`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import tensorflow as tf

from common.params import Floats
from models.layers import normalization
from models.layers.conv_batch_norm import conv2d_batch_norm
from models.layers.convolution import atrous, depthwise_conv2d
from models.layers.dropout import drop_path
from models.layers.squeeze_excite import squeeze_excite
from models.layers.swish import swish
from models.model import ModelError, check_fractions
from models.vision import classifier


class Stage(NamedTuple):
    """A row of table 1 of the first paper, of table 4 of the second one."""

    fused: bool  # a plain convolution instead of the expansion and the depthwise convolution
    expansion: int  # channels inside a block divided by those of its input
    kernel_size: int
    strides: int  # of the first block
    channels: int  # at width 1
    blocks: int  # at depth 1
    squeeze: float  # channels of squeeze and excitation divided by those of the input; 0: without


_MBCONV = {
    "v1": (
        (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3),
        (6, 5, 2, 192, 4), (6, 3, 1, 320, 1),
    ),
    "v2b": ((4, 3, 2, 96, 3), (6, 3, 1, 112, 5), (6, 3, 2, 192, 8)),
    "v2s": ((4, 3, 2, 128, 6), (6, 3, 1, 160, 9), (6, 3, 2, 256, 15)),
    "v2m": ((4, 3, 2, 160, 7), (6, 3, 1, 176, 14), (6, 3, 2, 304, 18), (6, 3, 1, 512, 5)),
    "v2l": ((4, 3, 2, 192, 10), (6, 3, 1, 224, 19), (6, 3, 2, 384, 25), (6, 3, 1, 640, 7)),
}  # fmt: skip
_FUSED = {
    "v1": (),
    "v2b": ((1, 3, 1, 16, 1), (4, 3, 2, 32, 2), (4, 3, 2, 48, 2)),
    "v2s": ((1, 3, 1, 24, 2), (4, 3, 2, 48, 4), (4, 3, 2, 64, 4)),
    "v2m": ((1, 3, 1, 24, 3), (4, 3, 2, 48, 5), (4, 3, 2, 80, 5)),
    "v2l": ((1, 3, 1, 32, 4), (4, 3, 2, 64, 7), (4, 3, 2, 96, 7)),
}
STAGES = {
    name: (
        *(Stage(True, *row, squeeze=0) for row in _FUSED[name]),
        *(Stage(False, *row, squeeze=0.25) for row in rows),
    )
    for name, rows in _MBCONV.items()
}
_STEM = {"v1": 32, "v2b": 32, "v2s": 24, "v2m": 24, "v2l": 32}
_HEAD = 1280

_IMAGENET = {"pixel_mean": Floats([123.675, 116.28, 103.53]), "pixel_scale": 1 / (0.226 * 255)}
_PLUS_MINUS_1 = {"pixel_mean": Floats([128.0]), "pixel_scale": 1 / 128}


def _size(stages, width, depth, dropout):
    momentum = 0.99 if stages == "v1" else 0.9
    pixels = _IMAGENET if stages in ("v1", "v2b") else _PLUS_MINUS_1
    return {
        "stages": stages,
        "width": width,
        "depth": depth,
        "dropout": dropout,
        "batch_norm_momentum": momentum,
        **pixels,
    }


SIZES = {
    "b0": _size("v1", 1.0, 1.0, 0.2),
    "b1": _size("v1", 1.0, 1.1, 0.2),
    "b2": _size("v1", 1.1, 1.2, 0.3),
    "b3": _size("v1", 1.2, 1.4, 0.3),
    "b4": _size("v1", 1.4, 1.8, 0.4),
    "b5": _size("v1", 1.6, 2.2, 0.4),
    "b6": _size("v1", 1.8, 2.6, 0.5),
    "b7": _size("v1", 2.0, 3.1, 0.5),
    "v2b0": _size("v2b", 1.0, 1.0, 0.2),
    "v2b1": _size("v2b", 1.0, 1.1, 0.2),
    "v2b2": _size("v2b", 1.1, 1.2, 0.3),
    "v2b3": _size("v2b", 1.2, 1.4, 0.3),
    "v2s": _size("v2s", 1.0, 1.0, 0.2),
    "v2m": _size("v2m", 1.0, 1.0, 0.3),
    "v2l": _size("v2l", 1.0, 1.0, 0.4),
}


def default_params():
    """Returns the hyperparameters of `inference` and `classification.losses`."""
    return {
        **classifier.default_params(),
        **normalization.default_params(epsilon=1e-3),
        "size": "b0",  # sets those below, the pixel scaling and the momentum of batch norm
        "stages": "v1",  # v1, v2b, v2s, v2m or v2l
        "width": 1.0,  # multiplies the channels of every layer
        "depth": 1.0,  # multiplies the blocks of every stage
        "dropout": 0.2,  # dropout rate of the pooled features
        **SIZES["b0"],
        "stochastic_depth": 0.2,  # the drop rate grows with each block from 0 towards this
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    classifier.check_params(params)
    normalization.check_params(params)
    if params["stages"] not in STAGES:
        raise ModelError(f"stages={params['stages']} must be one of {', '.join(STAGES)}")
    for name in ("width", "depth"):
        if not 0.1 <= params[name] <= 10:
            raise ModelError(f"{name}={params[name]} must be in [0.1, 10]")
    check_fractions(params, "dropout", "stochastic_depth")


def inference(features, params, training):
    """Computes class logits of images.

    Args:
      features: `{"image": uint8 or float32 [batch, height, width, channels]}`.
      params: see `default_params`.
      training: True turns dropout and stochastic depth on, and lets batch norm use batch statistics
        and update its moving averages.

    Returns:
      `{"logits": [batch, num_classes]}` of `params["precision"]`.
    """
    images = classifier.scaled_images(features, params)
    x = feature_maps(images, params, training, levels=[5])[5]
    with tf.compat.v1.variable_scope("head"):
        x = swish(conv2d_batch_norm(x, _channels(_HEAD, params), 1, params, training))
    return {"logits": classifier.pooled_logits(x, params, training)}


def feature_maps(images, params, training, levels, output_stride=32):
    """Computes the feature maps of the blocks before each downsampling, without the head.

    Args:
      images: float32 or bfloat16 `[batch, height, width, channels]`, see
        `classifier.scaled_images`.
      params: see `default_params`.
      training: see `inference`.
      levels: which maps to return, of 1 to 5. Blocks above the last one are not built.
      output_stride: 32, 16 or 8; see `convolution.atrous`.

    Returns:
      `{level: [batch, ceil(height / s), ceil(width / s), channels]}` for s = min(2**level,
      output_stride).
    """
    with tf.compat.v1.variable_scope("stem"):
        channels = _channels(_STEM[params["stages"]], params)
        x = swish(conv2d_batch_norm(images, channels, 3, params, training, strides=2))
    plan = blocks(params)
    placed = zip(plan, atrous([block.strides for block in plan], output_stride // 2))
    maps, level = {}, 1
    for i, (block, (strides, dilation)) in enumerate(placed):
        level += block.strides == 2
        if level > max(levels):
            break
        drop_rate = params["stochastic_depth"] * i / len(plan)
        build = _fused_mbconv if block.fused else _mbconv
        with tf.compat.v1.variable_scope(f"block_{i + 1}"):
            y = build(x, block._replace(strides=strides), dilation, params, training)
            if strides == block.strides == 1 and x.shape[-1] == block.channels:
                y = x + drop_path(y, drop_rate, training)
        x = maps[level] = y
    return {level: maps[level] for level in levels}


def _mbconv(x, block, dilation, params, training):
    """Inverted residual with squeeze and excitation (MBConv), without the shortcut.

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels_in]`.
      block: a `Stage`, of this block.
      dilation: of the depthwise convolution.
      params: see `default_params`.
      training: see `inference`.

    Returns:
      `[batch, ceil(height / strides), ceil(width / strides), block.channels]`.
    """
    channels_in = x.shape.as_list()[-1]
    if block.expansion > 1:
        names, hidden = ("expand", "expand_norm"), block.expansion * channels_in
        x = swish(conv2d_batch_norm(x, hidden, 1, params, training, names=names))
    x = depthwise_conv2d(x, block.strides, kernel_size=block.kernel_size, dilation=dilation)
    x = swish(normalization.batch_norm(x, params, training, "depthwise_norm"))
    x = squeeze_excite(x, max(1, int(channels_in * block.squeeze)))
    names = "project", "project_norm"
    return conv2d_batch_norm(x, block.channels, 1, params, training, names=names)


def _fused_mbconv(x, block, dilation, params, training):
    """Block with a plain convolution (Fused-MBConv), without the shortcut; as `_mbconv`."""
    conv = {"strides": block.strides, "dilation": dilation}
    names = "project", "project_norm"
    if block.expansion == 1:
        size = block.kernel_size
        x = conv2d_batch_norm(x, block.channels, size, params, training, names=names, **conv)
        return swish(x)
    hidden = block.expansion * x.shape.as_list()[-1]
    conv["names"] = "expand", "expand_norm"
    x = swish(conv2d_batch_norm(x, hidden, block.kernel_size, params, training, **conv))
    return conv2d_batch_norm(x, block.channels, 1, params, training, names=names)


def blocks(params):
    """Returns a `Stage` for each block, with its strides and channels."""
    found = []
    for stage in STAGES[params["stages"]]:
        first = stage._replace(channels=_channels(stage.channels, params))
        number = math.ceil(params["depth"] * stage.blocks)
        found += [first, *[first._replace(strides=1)] * (number - 1)]
    return found


def _channels(channels, params):
    """Returns the scaled number of channels, the nearest multiple of 8, but 0.9 of it at least.

    EfficientNetV2 does without the last condition.
    """
    scaled = channels * params["width"]
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded + 8 if params["stages"] == "v1" and rounded < 0.9 * scaled else rounded


MODEL = classifier.model(
    "efficientnet", default_params, inference, check_params, presets={"size": SIZES}
)
