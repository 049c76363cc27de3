"""ResNet-18, 34, 50, 101 and 152 (He et al. 2015, arXiv:1512.03385), for ImageNet and for CIFAR.

    logits = inference({"image": images}, params, training=True)["logits"]
    maps = feature_maps(scaled_images, params, training=True, levels=[3, 4, 5])

Scopes: `stem`, `stage_1/block_1` ... `stage_4/block_3`, `logits`.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import tensorflow as tf

from models.layers import normalization
from models.layers.conv_batch_norm import conv2d_batch_norm, stem
from models.layers.convolution import atrous
from models.layers.dropout import drop_path
from models.layers.normalization import every
from models.model import ModelError, check_fractions, check_positive
from models.vision import classifier

# Depth -> (number of blocks of each stage, whether they are bottlenecks).
DEPTHS = {
    10: ((1, 1, 1, 1), False),
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}
# As a backbone: name -> hyperparameters.
BACKBONES = {f"resnet{depth}": {"depth": depth} for depth in (18, 34, 50, 101)}


def default_params():
    """Returns the hyperparameters of `inference` and `classification.losses`."""
    return {
        **classifier.default_params(),
        **normalization.default_params(),
        "depth": 50,  # 10, 18, 34: basic blocks; 50, 101, 152: bottlenecks
        "width": 64,  # channels of the stem and the first stage; doubled by each stage
        "stem": "imagenet",  # 7x7 with stride 2, then max pooling; or cifar: 3x3 with stride 1
        "stride_in_1x1": False,  # True: v1, as in the paper and Keras; False: v1.5, in the 3x3
        "zero_init_last_gamma": True,  # blocks start as the identity (Goyal et al. 2017, 5.1)
        "stochastic_depth": 0.0,  # drop rate of the last block; linear in the depth of a block
        "dropout": 0.0,  # dropout rate of the pooled features
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    classifier.check_params(params)
    normalization.check_params(params)
    if params["depth"] not in DEPTHS:
        raise ModelError(f"depth={params['depth']} must be one of {', '.join(map(str, DEPTHS))}")
    check_positive(params, "width")
    if params["stem"] not in ("imagenet", "cifar"):
        raise ModelError(f"stem={params['stem']} must be imagenet or cifar")
    check_fractions(params, "stochastic_depth", "dropout")


def unused_params(params):
    """Returns the hyperparameters of blocks that this depth does not have; see `Model`."""
    _, has_bottlenecks = DEPTHS[params["depth"]]
    return {} if has_bottlenecks else {"stride_in_1x1": "depth"}


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
    return {"logits": classifier.pooled_logits(x, params, training)}


def feature_maps(images, params, training, levels, output_stride=32):
    """Computes the feature maps of the stem and of the stages.

    Args:
      images: float32 or bfloat16 `[batch, height, width, channels]`, see
        `classifier.scaled_images`.
      params: see `default_params`.
      training: see `inference`.
      levels: which maps to return: 1, the stem before max pooling; 2 to 5, stages 1 to 4. Stages
        above the last one are not built.
      output_stride: 32, 16 or 8. With 16 or 8 the last one or two stages keep the resolution of the
        stage before, and have dilated convolutions (Chen et al. 2017, arXiv:1706.05587).

    Returns:
      `{level: [batch, ceil(height / s), ceil(width / s), channels]}` for s = min(2**level,
      output_stride) with the imagenet stem.
    """
    maps = {}
    with tf.compat.v1.variable_scope("stem"):
        if params["stem"] == "cifar":
            x = tf.nn.relu(conv2d_batch_norm(images, params["width"], 3, params, training))
            maps[1] = x
        else:
            x, maps[1] = stem(images, params["width"], params, training, needs_map=1 in levels)
    _, has_bottlenecks = DEPTHS[params["depth"]]
    build = _bottleneck if has_bottlenecks else _basic
    for stage, blocks in _stages(params, levels, output_stride).items():
        for i, block in enumerate(blocks, start=1):
            with tf.compat.v1.variable_scope(f"stage_{stage}/block_{i}"):
                x = build(x, block, params, training)
        maps[stage + 1] = x
    return {level: maps[level] for level in levels}


class Block(NamedTuple):
    """What differs between the blocks of a network."""

    filters: int  # channels of its 3x3 convolutions
    strides: int  # of its first 3x3 convolution
    dilation: int  # of its 3x3 convolutions
    drop_rate: float  # of stochastic depth
    reads_every: int = 1  # 2: it reads every second row and column only
    keeps_every: int = 1  # 2: it returns every second row and column only


def _basic(x, block, params, training):
    """Basic block: two 3x3 convolutions and a shortcut (figure 5, left).

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels]`.
      block: a `Block`.
      params: see `default_params`.
      training: see `inference`.

    Returns:
      `[batch, ceil(height / strides), ceil(width / strides), filters]`.
    """
    conv = functools.partial(_conv, params=params, training=training)
    zero_gamma = params["zero_init_last_gamma"]
    shortcut = _shortcut(x, block.filters, block.strides, params, training)
    x = tf.nn.relu(conv(x, block.filters, 3, 1, strides=block.strides, dilation=block.dilation))
    x = conv(x, block.filters, 3, 2, dilation=block.dilation, zero_gamma=zero_gamma)
    return tf.nn.relu(shortcut + drop_path(x, block.drop_rate, training))


def _bottleneck(x, block, params, training):
    """Bottleneck: 1x1, 3x3 and 1x1 convolutions and a shortcut (figure 5, right).

    Args and Returns as of `_basic`, with `4 * filters` output channels.
    """
    conv = functools.partial(_conv, params=params, training=training)
    zero_gamma, keeps_every = params["zero_init_last_gamma"], block.keeps_every
    x = every(x, block.reads_every)
    shortcut = _shortcut(x, 4 * block.filters, block.strides, params, training)
    shortcut = every(shortcut, keeps_every)
    x = tf.nn.relu(conv(x, block.filters, 1, 1))
    x = tf.nn.relu(conv(x, block.filters, 3, 2, strides=block.strides, dilation=block.dilation))
    x = conv(x, 4 * block.filters, 1, 3, zero_gamma=zero_gamma, keeps_every=keeps_every)
    return tf.nn.relu(shortcut + drop_path(x, block.drop_rate, training))


def _conv(x, filters, kernel_size, number, params, training, **options):
    """Convolution `number` of a block, with batch norm; options as of `conv2d_batch_norm`."""
    options.update(padding="symmetric", names=(f"conv_{number}", f"batch_norm_{number}"))
    return conv2d_batch_norm(x, filters, kernel_size, params, training, **options)


def _shortcut(x, filters, strides, params, training):
    """Identity shortcut, or a 1x1 convolution (projection) if the block changes the shape."""
    if strides == 1 and x.shape.as_list()[-1] == filters:
        return x
    with tf.compat.v1.variable_scope("shortcut"):
        return conv2d_batch_norm(x, filters, 1, params, training, strides)


def _stages(params, levels, output_stride):
    """Returns `{stage: [Block]}` up to the highest of `levels`; see `feature_maps`."""
    counts, has_bottlenecks = DEPTHS[params["depth"]]
    total = sum(counts)
    in_stem = 4 if params["stem"] == "imagenet" else 1
    strides = [2 if stage and not i else 1 for stage, n in enumerate(counts) for i in range(n)]
    plan = enumerate(atrous(strides, output_stride // in_stem), start=1)
    stages = {}
    for stage, count in enumerate(counts, start=1):
        filters = params["width"] * 2 ** (stage - 1)
        stages[stage] = [
            Block(filters, strides, dilation, params["stochastic_depth"] * number / total)
            for number, (strides, dilation) in itertools.islice(plan, count)
        ]
    if has_bottlenecks and params["stride_in_1x1"]:
        _move_strides_before(stages, levels)
    return {stage: blocks for stage, blocks in stages.items() if stage < max(levels)}


def _move_strides_before(stages, levels):
    """Moves the strides of the 3x3 convolutions before the first convolution, as in the paper.

    With strides there, both 1x1 convolutions read every second row and column: the block before
    computes these only, unless its map is returned.
    """
    for stage, blocks in stages.items():
        strides = blocks[0].strides
        blocks[0] = blocks[0]._replace(strides=1)
        if strides > 1 and stage in levels:  # the level of the stage before
            blocks[0] = blocks[0]._replace(reads_every=strides)
        elif strides > 1:
            stages[stage - 1][-1] = stages[stage - 1][-1]._replace(keeps_every=strides)


MODEL = classifier.model("resnet", default_params, inference, check_params, unused_params)
