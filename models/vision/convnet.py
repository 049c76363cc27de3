"""A sequential convolutional network, defined by its hyperparameter `layers`.

`--params=layers=[conv:32:3,relu,pool:2,flatten]`; the layers are, in the order of the list:

    conv:FILTERS:KERNEL[:valid]   KERNEL x KERNEL convolution, stride 1, padding same unless valid
    pool:SIZE                     max pooling, SIZE x SIZE, stride SIZE
    batch_norm                    the convolution or dense layer right before it has no bias
    relu
    dropout:RATE                  in training only
    flatten | global_pool         from [batch, height, width, channels] to [batch, units]
    dense:UNITS

A dense layer to `num_classes` logits follows the last one.
"""

from __future__ import annotations

import tensorflow as tf

from common import strict_flags
from common.params import Strings
from models.layers import normalization
from models.layers.dropout import dropout
from models.layers.pooling import global_pool
from models.model import ModelError
from models.vision import classifier


def default_params():
    """Returns the hyperparameters of `inference` and `classification.losses`."""
    return {
        **classifier.default_params(),
        **normalization.default_params(),
        "layers": Strings([
            "conv:32:3", "relu", "pool:2", "conv:64:3", "relu", "pool:2",
            "flatten", "dense:128", "relu", "dropout:0.5",
        ]),
    }  # fmt: skip


def check_params(params):
    """Raises `ModelError` for a value out of range, or for an unknown or misplaced layer."""
    classifier.check_params(params)
    normalization.check_params(params)
    flat = False
    for word in params["layers"]:
        kind = _parse(word)[0]
        if kind in ("conv", "pool", "flatten", "global_pool") and flat:
            raise ModelError(f"layers: '{word}' needs images, but they are flattened before it")
        if kind == "dense" and not flat:
            raise ModelError(f"layers: '{word}' needs 'flatten' or 'global_pool' before it")
        flat = flat or kind in ("flatten", "global_pool")
    if not flat:
        raise ModelError(f"layers={params['layers']} needs a 'flatten' or 'global_pool'")


def unused_params(params):
    """Returns the hyperparameters of layers that the network does not have; see `Model`."""
    if "batch_norm" in params["layers"]:
        return {}
    return dict.fromkeys(normalization.default_params(), "layers")


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
    x = classifier.scaled_images(features, params)
    words = params["layers"]
    for i, word in enumerate(words):
        use_bias = "batch_norm" not in words[i + 1 : i + 2]
        x = _layer(x, word, f"layer_{i}", use_bias, params, training)
    return {"logits": tf.compat.v1.layers.dense(x, params["num_classes"], name="logits")}


def _layer(x, word, name, use_bias, params, training):
    """Applies the layer that `word` defines.

    Args:
      x: `[batch, height, width, channels]`, or `[batch, units]` after flatten or global_pool.
      word: an element of `params["layers"]`.
      name: variable scope of the layer.
      use_bias: False if batch norm follows.
      params: see `default_params`.
      training: see `inference`.
    """
    layers = tf.compat.v1.layers
    kind, arguments = _parse(word)
    _check_fits(x, word, kind, arguments)
    if kind == "conv":
        filters, kernel, padding = arguments
        return layers.conv2d(x, filters, kernel, padding=padding, use_bias=use_bias, name=name)
    if kind == "dense":
        return layers.dense(x, *arguments, use_bias=use_bias, name=name)
    if kind == "pool":
        return layers.max_pooling2d(x, *arguments, strides=arguments[0], name=name)
    if kind == "batch_norm":
        return normalization.batch_norm(x, params, training, name)
    if kind == "relu":
        return tf.nn.relu(x, name=name)
    if kind == "dropout":
        with tf.name_scope(name):
            return dropout(x, *arguments, training)
    if kind == "flatten":
        return layers.flatten(x, name=name)
    return global_pool(x, name)


def _check_fits(x, word, kind, arguments):
    """Raises `ModelError` if the images are smaller than a pool or a valid convolution."""
    if kind == "pool":
        window = arguments[0]
    elif kind == "conv" and "valid" in arguments:
        window = arguments[1]
    else:
        return
    height, width = x.shape.as_list()[1:3]
    if min(height, width) < window:
        raise ModelError(f"layers: '{word}' gets images of {height}x{width}, smaller than {window}")


def _parse(word):
    """Returns the kind of a layer and its arguments, all checked."""
    kind, *arguments = word.split(":")
    try:
        if kind == "conv" and len(arguments) in (2, 3):
            filters, kernel, padding = [*arguments, "same"][:3]
            if padding in ("same", "valid"):
                return kind, [_positive(filters), _positive(kernel), padding]
        elif kind in ("pool", "dense") and len(arguments) == 1:
            return kind, [_positive(arguments[0])]
        elif kind == "dropout" and len(arguments) == 1:
            rate = strict_flags.to_float(arguments[0])
            if 0 <= rate < 1:
                return kind, [rate]
        elif kind in ("batch_norm", "relu", "flatten", "global_pool") and not arguments:
            return kind, []
    except ValueError:
        pass
    raise ModelError(
        f"layers: '{word}' is not a layer. Write conv:FILTERS:KERNEL[:valid], pool:SIZE, "
        "batch_norm, relu, dropout:RATE, flatten, global_pool or dense:UNITS"
    )


def _positive(text):
    number = strict_flags.to_integer(text)
    if number < 1:
        raise ValueError(text)
    return number


MODEL = classifier.model("convnet", default_params, inference, check_params, unused_params)
