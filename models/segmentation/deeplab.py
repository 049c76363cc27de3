"""DeepLabV3+ (Chen et al. 2018, arXiv:1802.02611): atrous spatial pyramid pooling and a decoder.

Scopes: those of the backbone, `aspp`, `decoder`, `logits`.
"""

from __future__ import annotations

import tensorflow as tf

from common.params import Ints
from models.layers.conv_batch_norm import conv2d_batch_norm
from models.layers.dropout import dropout
from models.layers.pooling import global_pool
from models.layers.resize import resize_bilinear
from models.model import ModelError, check_fractions, check_positive
from models.segmentation import segmentation
from models.vision import backbones

_LOW_LEVEL = 2  # of the map that the decoder adds, with a quarter of the resolution


def default_params():
    """Returns the hyperparameters of `inference` and of `segmentation.model_losses`."""
    return {
        **segmentation.default_params(),
        **backbones.default_params(),
        "output_stride": 16,  # of the last map of the backbone: 8 or 16
        "aspp_rates": Ints([6, 12, 18]),  # dilations for an output stride of 16; twice these for 8
        "aspp_filters": 256,
        "low_level_filters": 48,  # channels of the map of the backbone in the decoder
        "decoder_filters": 256,
        "dropout": 0.1,  # dropout rate of the output of ASPP
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    segmentation.check_params(params)
    backbones.check_params(params)
    if params["output_stride"] not in (8, 16):
        raise ModelError(f"output_stride={params['output_stride']} must be 8 or 16")
    check_positive(params, "aspp_rates", "aspp_filters", "low_level_filters", "decoder_filters")
    check_fractions(params, "dropout")


def unused_params(params):
    """Returns the hyperparameters of another backbone or loss; see `Model`."""
    return {**segmentation.unused_params(params), **backbones.unused_params(params)}


def inference(features, params, training):
    """Computes class logits of every pixel.

    Args:
      features: `{"image": uint8 or float32 [batch, height, width, channels]}`.
      params: see `default_params`.
      training: True turns dropout on, and lets batch norm use batch statistics and update its
        moving averages.

    Returns:
      `{"logits": float32 [batch, height, width, num_classes]}`.
    """
    _, height, width, _ = features["image"].shape.as_list()
    levels, output_stride = (_LOW_LEVEL, 5), params["output_stride"]
    maps = backbones.feature_maps(features, params, training, levels, output_stride)
    with tf.compat.v1.variable_scope("aspp"):
        x = _aspp(maps[5], params, training)
    with tf.compat.v1.variable_scope("decoder"):
        low = _conv(maps[_LOW_LEVEL], params["low_level_filters"], 1, params, training, "low_level")
        x = resize_bilinear(x, *low.shape.as_list()[1:3])
        x = tf.concat([x, low], -1)
        for i in (1, 2):
            x = _conv(x, params["decoder_filters"], 3, params, training, f"conv_{i}")
    return {"logits": segmentation.classify(x, params, height, width)}


def _aspp(x, params, training):
    """Atrous spatial pyramid pooling (Chen et al. 2017, arXiv:1706.05587, section 3.3).

    Args:
      x: `[batch, height, width, channels]`.
      params: see `default_params`.
      training: see `inference`.

    Returns:
      `[batch, height, width, aspp_filters]`.
    """
    _, height, width, _ = x.shape.as_list()
    filters, factor = params["aspp_filters"], 16 // params["output_stride"]
    branches = [_conv(x, filters, 1, params, training, "conv_1x1")]
    for i, rate in enumerate(params["aspp_rates"], start=1):
        name = f"atrous_{i}"
        branches.append(_conv(x, filters, 3, params, training, name, rate * factor))
    pooled = global_pool(x, "global_pool")[:, tf.newaxis, tf.newaxis]
    pooled = _conv(pooled, filters, 1, params, training, "image_pooling")
    branches.append(tf.tile(pooled, [1, height, width, 1]))
    x = _conv(tf.concat(branches, -1), filters, 1, params, training, "project")
    return dropout(x, params["dropout"], training)


def _conv(x, filters, kernel_size, params, training, name, dilation=1):
    """Convolution, batch norm and ReLU in the scope `name`."""
    with tf.compat.v1.variable_scope(name):
        x = conv2d_batch_norm(x, filters, kernel_size, params, training, dilation=dilation)
        return tf.nn.relu(x)


MODEL = segmentation.model("deeplab", default_params, inference, check_params, unused_params)
