"""Feature pyramid network (Lin et al. 2016, arXiv:1612.03144) and RetinaNet's heads.

Scopes: `fpn/lateral_3` ..., `fpn/output_3` ..., `fpn/norm_3` ...; `class_head/conv_1` ...,
`class_head/norm_1_level_3` ..., `class_head/logits`; `box_head/...`, `box_head/codes`.
"""

from __future__ import annotations

import math

import tensorflow as tf

from models.detection import anchors
from models.layers import normalization
from models.layers.resize import double
from models.model import ModelError, check_positive


def default_params():
    """Returns the hyperparameters of `pyramid` and `heads`."""
    return {
        "fpn_channels": 256,
        "head_convs": 4,  # hidden convolutions of each head
        # Initial probability of a class at an anchor: almost all anchors are background.
        "class_prior": 0.01,
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_pyramid(params)
    if params["head_convs"] < 0:
        raise ModelError(f"head_convs={params['head_convs']} must be at least 0")
    if not 0 < params["class_prior"] < 1:
        raise ModelError(f"class_prior={params['class_prior']} must be in (0, 1)")


def check_pyramid(params):
    """Raises `ModelError` for a hyperparameter of `pyramid` out of range."""
    check_positive(params, "fpn_channels")
    if params["min_level"] > 5:
        raise ModelError(f"min_level={params['min_level']} must be at most 5, as of the backbone")


def pyramid(maps, params, training):
    """Computes the feature pyramid.

    Args:
      maps: `{level: [batch, height, width, channels]}` of a backbone, from `min_level` to 5.
      params: see `default_params` and `anchors.default_params`.
      training: True lets batch norm use batch statistics and update its moving averages.

    Returns:
      `{level: [batch, height, width, fpn_channels]}` from `min_level` to `max_level`; levels above
      5 are computed from the one below (Lin et al. 2017, arXiv:1708.02002, section 4).
    """
    low, high = params["min_level"], params["max_level"]
    top = min(high, max(maps))
    found = {}
    with tf.compat.v1.variable_scope("fpn"):
        merged = None
        for level in range(top, low - 1, -1):
            lateral = _conv(maps[level], params["fpn_channels"], 1, f"lateral_{level}")
            merged = lateral if merged is None else lateral + _upsample(merged, lateral.shape)
            found[level] = _conv(merged, params["fpn_channels"], 3, f"output_{level}")
        for level in range(top + 1, high + 1):
            x = found[level - 1]
            x = x if level == top + 1 else tf.nn.relu(x)
            found[level] = _conv(x, params["fpn_channels"], 3, f"output_{level}", strides=2)
        return {
            level: normalization.batch_norm(found[level], params, training, f"norm_{level}")
            for level in range(low, high + 1)
        }


def heads(maps, params, training):
    """Computes class logits and box codes of all anchors.

    The convolutions are shared by all levels; each level has its own batch norm.

    Args:
      maps: what `pyramid` returned.
      params: `num_classes`, and see `default_params`.
      training: see `pyramid`.

    Returns:
      `{"class_logits": {level: [batch, height, width, anchors per cell * num_classes]},
      "box_codes": {level: [batch, height, width, anchors per cell * 4]}}`.
    """
    per_cell = anchors.per_cell(params)
    bias = -math.log((1 - params["class_prior"]) / params["class_prior"])
    return {
        "class_logits": _head(
            maps, "class_head", "logits", per_cell * params["num_classes"], bias, params, training
        ),
        "box_codes": _head(maps, "box_head", "codes", per_cell * 4, 0.0, params, training),
    }


def _head(maps, scope, last, filters, bias, params, training):
    """Returns `{level: [batch, height, width, filters]}`."""
    small = tf.compat.v1.random_normal_initializer(stddev=0.01)
    found = {}
    for level, x in maps.items():
        with tf.compat.v1.variable_scope(scope, reuse=tf.compat.v1.AUTO_REUSE):
            for i in range(1, params["head_convs"] + 1):
                x = _conv(x, params["fpn_channels"], 3, f"conv_{i}", initializer=small)
                name = f"norm_{i}_level_{level}"
                x = tf.nn.relu(normalization.batch_norm(x, params, training, name))
            found[level] = _conv(x, filters, 3, last, initializer=small, bias=bias)
    return found


def _conv(x, filters, size, name, strides=1, initializer=None, bias=0.0):
    """Convolution with a bias, by default initialized as Glorot and Bengio 2010 do."""
    return tf.compat.v1.layers.conv2d(
        x,
        filters,
        size,
        strides,
        "same",
        kernel_initializer=initializer,
        bias_initializer=tf.compat.v1.constant_initializer(bias),
        name=name,
    )


def _upsample(x, shape):
    """Repeats each pixel twice in both directions, cropped to `shape`, that of a map."""
    x = double(x)
    return x[:, : shape[1], : shape[2]]
