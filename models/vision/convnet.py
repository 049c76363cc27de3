"""A plain convolutional network whose layers are written in its hyperparameter `layers`.

`layers` is read from left to right, one word a layer:

    conv:FILTERS:KERNEL[:valid]   KERNEL x KERNEL convolution, stride 1, padding same unless valid
    pool:SIZE                     max pooling, SIZE x SIZE, stride SIZE
    batch_norm                    a convolution or dense layer right before it drops its bias
    relu
    dropout:RATE                  in training only
    flatten | global_pool         from [batch, height, width, channels] to [batch, units]
    dense:UNITS

The last dense layer, to `num_classes` logits, is added by itself.
"""

from __future__ import annotations

import re

import tensorflow as tf

from models.layers import normalization
from models.layers.dropout import dropout
from models.model import ModelError
from models.vision import classifier


def default_params():
    """Returns the hyperparameters of `inference` and `classifier.loss`."""
    return {
        **classifier.default_params(),
        **normalization.default_params(),
        "layers": "conv:32:3 relu pool:2 conv:64:3 relu pool:2 flatten dense:128 relu dropout:0.5",
    }


def check_params(params):
    """Raises `ModelError` for a value out of range, and for a wrong or misplaced layer."""
    classifier.check_params(params)
    normalization.check_params(params)
    flat = False
    for word in params["layers"].split():
        kind = _parse(word)[0]
        if kind in ("conv", "pool", "flatten", "global_pool") and flat:
            raise ModelError(f"layers: '{word}' stands after the images were flattened")
        if kind == "dense" and not flat:
            raise ModelError(f"layers: '{word}' needs 'flatten' or 'global_pool' before it")
        flat = flat or kind in ("flatten", "global_pool")
    if not flat:
        raise ModelError(f"layers='{params['layers']}' needs a 'flatten' or 'global_pool'")


def inference(features, params, training):
    """Computes class logits of images.

    Args:
      features: `{"image": uint8 or float32 [batch, height, width, channels]}`.
      params: see `default_params`.
      training: whether dropout is on and batch norm uses and updates batch statistics.

    Returns:
      `{"logits": [batch, num_classes]}` of `params["precision"]`.
    """
    x = classifier.scaled_images(features, params)
    words = params["layers"].split()
    for i, word in enumerate(words):
        use_bias = words[i + 1 : i + 2] != ["batch_norm"]
        x = _layer(x, word, f"layer_{i}", use_bias, params, training)
    return {"logits": tf.compat.v1.layers.dense(x, params["num_classes"], name="logits")}


def _layer(x, word, name, use_bias, params, training):
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
    return classifier.global_pool(x, name)


def _check_fits(x, word, kind, arguments):
    """Raises `ModelError` where the images are smaller than a window that must lie inside them."""
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
    """Returns the kind of layer and its arguments, all checked."""
    kind, *arguments = word.split(":")
    try:
        if kind == "conv" and len(arguments) in (2, 3):
            filters, kernel, padding = [*arguments, "same"][:3]
            if padding in ("same", "valid"):
                return kind, [_positive(filters), _positive(kernel), padding]
        elif kind in ("pool", "dense") and len(arguments) == 1:
            return kind, [_positive(arguments[0])]
        elif kind == "dropout" and len(arguments) == 1 and 0 <= float(arguments[0]) < 1:
            return kind, [float(arguments[0])]
        elif kind in ("batch_norm", "relu", "flatten", "global_pool") and not arguments:
            return kind, []
    except ValueError:
        pass
    raise ModelError(
        f"layers: '{word}' is no layer. Write conv:FILTERS:KERNEL[:valid], pool:SIZE, batch_norm, "
        "relu, dropout:RATE, flatten, global_pool or dense:UNITS"
    )


def _positive(text):
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        raise ValueError(text)
    return int(text)


MODEL = classifier.model("convnet", default_params, inference, check_params)
