"""U-Net (Ronneberger et al. 2015, arXiv:1505.04597), with its own encoder or a backbone.

Unlike the paper, convolutions are padded and have batch norm, so the mask has the size of the image
for any size. Scopes: `encoder/level_0` ..., or those of the backbone, `decoder/level_3` ...,
`logits`. The maps of level i have a resolution of 1 / 2**i.
"""

from __future__ import annotations

import tensorflow as tf

from models.layers.conv_batch_norm import conv2d_batch_norm
from models.layers.dropout import dropout
from models.layers.strided_convolution import doubling_conv2d
from models.model import ModelError, check_fractions, check_positive
from models.segmentation import segmentation
from models.vision import backbones

OWN = "own"
_MAX_DEPTH = 5  # levels of the backbones
_TRANSPOSED = tf.compat.v1.variance_scaling_initializer(2.0, "fan_in", "untruncated_normal")


def default_params():
    """Returns the hyperparameters of `inference` and of `segmentation.model_losses`."""
    return {
        **segmentation.default_params(),
        **backbones.default_params(OWN),  # own: two convolutions per level; or a backbone
        "depth": 4,  # number of downsamplings
        "width": 64,  # channels of level 0; doubled by each level
        "output_level": 0,  # the decoder ends there, and the logits are resized to the image
        "dropout": 0.0,  # dropout rate of the map of the lowest resolution
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    segmentation.check_params(params)
    backbones.check_params(params, (OWN, *backbones.NAMES))
    if not 1 <= params["depth"] <= _MAX_DEPTH:
        raise ModelError(f"depth={params['depth']} must be from 1 to {_MAX_DEPTH}")
    check_positive(params, "width")
    if not 0 <= params["output_level"] < params["depth"]:
        raise ModelError(
            f"output_level={params['output_level']} must be from 0 to depth - 1 = "
            f"{params['depth'] - 1}"
        )
    check_fractions(params, "dropout")


def unused_params(params):
    """Returns the hyperparameters of another backbone or loss; see `Model`."""
    of_backbone = dict.fromkeys(("backbone_width", "stride_in_1x1"), "backbone")
    if params["backbone"] != OWN:
        of_backbone = backbones.unused_params(params)
    return {**segmentation.unused_params(params), **of_backbone}


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
    maps = _encoder(features, params, training)
    x = dropout(maps[params["depth"]], params["dropout"], training)
    for level in reversed(range(params["output_level"], params["depth"])):
        with tf.compat.v1.variable_scope(f"decoder/level_{level}"):
            x = _up(x, maps[level], params["width"] * 2**level)
            x = _double_conv([x, maps[level]], params["width"] * 2**level, params, training)
    return {"logits": segmentation.classify(x, params, height, width)}


def _encoder(features, params, training):
    """Returns `{level: map}` for the levels from `output_level` to `depth`."""
    images = backbones.scaled_images(features, params)
    depth, maps = params["depth"], {}
    if params["backbone"] == OWN:
        x = images
        for level in range(depth + 1):
            x = tf.nn.max_pool2d(x, 2, 2, "SAME") if level else x
            with tf.compat.v1.variable_scope(f"encoder/level_{level}"):
                x = maps[level] = _double_conv(x, params["width"] * 2**level, params, training)
        return maps
    levels = range(max(1, params["output_level"]), depth + 1)
    maps.update(backbones.feature_maps(features, params, training, levels))
    if params["output_level"] == 0:  # backbones begin with level 1
        with tf.compat.v1.variable_scope("encoder/level_0"):
            maps[0] = _double_conv(images, params["width"], params, training)
    return maps


def _double_conv(x, filters, params, training):
    """Two 3x3 convolutions, each with batch norm and ReLU, of a map or of several as one."""
    for i in (1, 2):
        names = f"conv_{i}", f"batch_norm_{i}"
        x = conv2d_batch_norm(x, filters, 3, params, training, names=names, activation=tf.nn.relu)
    return x


def _up(x, skip, filters):
    """Doubles the resolution by a transposed 2x2 convolution, to that of the skip connection.

    Args:
      x: `[batch, height, width, channels]`.
      skip: `[batch, skip_height, skip_width, skip_channels]`, about twice as high and wide.
      filters: output channels of the transposed convolution.

    Returns:
      `[batch, skip_height, skip_width, filters]`.
    """
    shape = [2, 2, filters, x.shape.as_list()[-1]]
    kernel = tf.compat.v1.get_variable("up/kernel", shape, x.dtype, initializer=_TRANSPOSED)
    x = doubling_conv2d(x, kernel)
    # An odd side was rounded up, or down by a convolution without padding.
    _, rows, columns, _ = skip.shape.as_list()
    _, height, width, _ = x.shape.as_list()
    if rows < height or columns < width:
        x = x[:, :rows, :columns]
    missing = [max(0, rows - height), max(0, columns - width)]
    if any(missing):
        x = tf.pad(x, [[0, 0], [0, missing[0]], [0, missing[1]], [0, 0]])
    return x


MODEL = segmentation.model("unet", default_params, inference, check_params, unused_params)
