"""ResNet-18, 34, 50, 101 and 152 (He et al. 2015, arXiv:1512.03385), for ImageNet and for CIFAR.

Scopes: `stem`, `stage_1/block_1` ... `stage_4/block_3`, `logits`.
"""

from __future__ import annotations

import tensorflow as tf

from models.layers import device, normalization
from models.layers.conv_batch_norm import conv_1x1_batch_norm, stem
from models.layers.convolution import conv2d
from models.layers.dropout import dropout
from models.model import ModelError, check_fractions
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
_EXPANSION = 4  # output channels of a bottleneck divided by those of its 3x3 convolution


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
    if params["width"] < 1:
        raise ModelError(f"width={params['width']} must be at least 1")
    if params["stem"] not in ("imagenet", "cifar"):
        raise ModelError(f"stem={params['stem']} must be imagenet or cifar")
    check_fractions(params, "stochastic_depth", "dropout")


def has_bottlenecks(depth):
    """Returns True for bottleneck blocks, False for basic ones."""
    return DEPTHS[depth][1]


def unused_params(params):
    """Returns the hyperparameters of blocks that this depth does not have; see `Model`."""
    return {} if has_bottlenecks(params["depth"]) else {"stride_in_1x1": "depth"}


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
    x = _stages(images, params, training, 32, only_last=True)[5]
    return {"logits": classifier.pooled_logits(x, params, training)}


def feature_maps(images, params, training, output_stride=32):
    """Computes the feature maps of the stem and of the four stages.

    Args:
      images: float32 or bfloat16 `[batch, height, width, channels]`, see
        `classifier.scaled_images`.
      params: see `default_params`.
      training: see `inference`.
      output_stride: 32, 16 or 8. With 16 or 8 the last one or two stages keep the resolution of the
        stage before, and have dilated convolutions (Chen et al. 2017, arXiv:1706.05587).

    Returns:
      `{1: stem before max pooling, 2: stage 1, 3: stage 2, 4: stage 3, 5: stage 4}`. With the
      imagenet stem, map i is `[batch, ceil(height / s), ceil(width / s), channels]` for
      s = min(2**i, output_stride).
    """
    return _stages(images, params, training, output_stride, only_last=False)


def _stages(x, params, training, output_stride, only_last):
    """Returns `feature_maps`; with `only_last` the other maps may be smaller."""
    x, maps = _stem(x, params, training, only_last)
    counts, bottleneck = DEPTHS[params["depth"]]
    block = _bottleneck if bottleneck else _basic
    in_1x1 = bottleneck and params["stride_in_1x1"]
    num_blocks, built = sum(counts), 0
    total_stride, dilation = 4 if params["stem"] == "imagenet" else 1, 1
    for stage, all_strides in enumerate(_strides(counts, in_1x1 and only_last)):
        for i, strides in enumerate(all_strides):
            built += 1
            skip = params["stochastic_depth"] * built / num_blocks
            own_dilation = dilation
            if total_stride * strides > output_stride:
                strides, dilation = 1, dilation * 2  # the dilation of the blocks that follow
            total_stride *= strides
            with tf.compat.v1.variable_scope(f"stage_{stage + 1}/block_{i + 1}"):
                if in_1x1 and not only_last:
                    x, strides = normalization.every(x, strides), 1
                filters = params["width"] * 2**stage
                x = block(x, filters, strides, own_dilation, skip, params, training)
        maps[stage + 2] = x
    return maps


def _strides(counts, in_1x1):
    """Returns the strides of the blocks of each stage.

    A 1x1 convolution with stride 2 at the start of a stage reads a quarter of its input. With
    `in_1x1` the last block of the stage before computes only that quarter.
    """
    strides = [[1] * count for count in counts]
    for stage, following in zip(strides, strides[1:]):
        if in_1x1:
            stage[-1] = 2
        else:
            following[0] = 2
    return strides


def _stem(x, params, training, only_last):
    """Stem, and the map of its convolution; the imagenet stem divides height and width by 4."""
    with tf.compat.v1.variable_scope("stem"):
        if params["stem"] == "cifar":
            x = conv2d(x, params["width"], 3)
            x = tf.nn.relu(normalization.batch_norm(x, params, training))
            return x, {1: x}
        if only_last:
            pooled = stem(x, params["width"], params, training)
            if pooled is not None:
                return pooled, {}
        x = conv2d(x, params["width"], 7, strides=2, padding="symmetric")
        x = normalization.batch_norm(x, params, training)
        maps = {1: tf.nn.relu(x)}
        # ReLU after max pooling, on a quarter of the values: it commutes with the maximum and keeps
        # the zeros of the padding. XLA does not support pooling with explicit padding.
        x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
        return tf.nn.relu(tf.nn.max_pool2d(x, 3, 2, "VALID")), maps


def _basic(x, filters, strides, dilation, skip, params, training):
    """Basic block: two 3x3 convolutions and a shortcut.

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels]`.
      filters: number of output channels.
      strides: of the first convolution.
      dilation: of the 3x3 convolutions.
      skip: drop rate of stochastic depth.
      params: see `default_params`.
      training: see `inference`.

    Returns:
      `[batch, ceil(height / strides), ceil(width / strides), filters]`.
    """
    shortcut = _shortcut(x, filters, strides, params, training)
    x = conv2d(x, filters, 3, strides, "symmetric", "conv_1", dilation)
    x = tf.nn.relu(normalization.batch_norm(x, params, training, "batch_norm_1"))
    x = conv2d(x, filters, 3, name="conv_2", dilation=dilation)
    zero = params["zero_init_last_gamma"]
    x = normalization.batch_norm(x, params, training, "batch_norm_2", zero)
    return tf.nn.relu(shortcut + _drop_path(x, skip, training))


def _bottleneck(x, filters, strides, dilation, skip, params, training):
    """Bottleneck block: 1x1, 3x3 and 1x1 convolutions and a shortcut.

    The stride is in the 3x3 convolution; with `stride_in_1x1` it is applied to the output, see
    `_strides`. Arguments as of `_basic`.

    Returns:
      `[batch, ceil(height / strides), ceil(width / strides), 4 * filters]`.
    """
    middle, end = (1, strides) if params["stride_in_1x1"] else (strides, 1)
    shortcut = _shortcut(x, _EXPANSION * filters, middle, params, training)
    shortcut = normalization.every(shortcut, end)
    x = conv2d(x, filters, 1, name="conv_1")
    x = tf.nn.relu(normalization.batch_norm(x, params, training, "batch_norm_1"))
    x = conv2d(x, filters, 3, middle, "symmetric", "conv_2", dilation)
    x = tf.nn.relu(normalization.batch_norm(x, params, training, "batch_norm_2"))
    zero = params["zero_init_last_gamma"]
    names = "conv_3", "batch_norm_3"
    x = conv_1x1_batch_norm(x, _EXPANSION * filters, params, training, *names, zero, end)
    return tf.nn.relu(shortcut + _drop_path(x, skip, training))


def _shortcut(x, filters, strides, params, training):
    """Identity shortcut, or a 1x1 convolution (projection) if the block changes the shape."""
    if strides == 1 and x.shape.as_list()[-1] == filters:
        return x
    with tf.compat.v1.variable_scope("shortcut"):
        if device.is_tpu():  # as conv2d does
            return conv_1x1_batch_norm(normalization.every(x, strides), filters, params, training)
        return normalization.batch_norm(conv2d(x, filters, 1, strides), params, training)


def _drop_path(x, rate, training):
    """Stochastic depth (Huang et al. 2016, arXiv:1603.09382): drops `x` of random images."""
    return dropout(x, rate, training, noise_shape=[tf.shape(x)[0], 1, 1, 1])


MODEL = classifier.model("resnet", default_params, inference, check_params, unused_params)
