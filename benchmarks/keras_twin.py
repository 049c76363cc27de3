"""The same network in `tf.keras`, for tests and benchmarks: same layers, same names of weights."""

from __future__ import annotations

import tensorflow as tf


def build(params, image_shape):
    """Returns the Sequential of the hyperparameters of models/convnet.py or models/mlp.py.

    Args:
      params: every hyperparameter; `hidden_units` marks an mlp, `layers` a convnet.
      image_shape: `(height, width, channels)`.
    """
    layers = tf.keras.layers
    twin = tf.keras.Sequential([layers.Input(image_shape), layers.Rescaling(params["pixel_scale"])])
    for layer in _mlp(params) if "hidden_units" in params else _convnet(params):
        twin.add(layer)
    twin.add(layers.Dense(params["num_classes"], name="logits"))
    return twin


def optimizer(params, learning_rate):
    """Returns Keras' optimizer of the same hyperparameters."""
    keras = tf.keras.optimizers
    if params["optimizer"] == "momentum":
        return keras.SGD(learning_rate, params["momentum"], params["nesterov"])
    adam = {
        "beta_1": params["beta1"],
        "beta_2": params["beta2"],
        "epsilon": params["epsilon"],
    }
    if params["optimizer"] == "adamw":
        return keras.AdamW(learning_rate, params["weight_decay"], **adam)
    return keras.Adam(learning_rate, **adam)


def set_weights(twin, variables):
    """Gives the twin the weights `{name in our checkpoint: array}`."""
    for layer in twin.layers:
        names = [weight.name.split("/")[-1].split(":")[0] for weight in layer.weights]
        layer.set_weights([variables[f"{layer.name}/{name}"] for name in names])


def _mlp(params):
    layers = tf.keras.layers
    yield layers.Flatten()
    for i, units in enumerate(params["hidden_units"].split()):
        yield layers.Dense(int(units), "relu", name=f"dense_{i}")
        yield layers.Dropout(params["dropout"])


def _convnet(params):
    words = params["layers"].split()
    for i, word in enumerate(words):
        use_bias = words[i + 1 : i + 2] != ["batch_norm"]
        yield _layer(word.split(":"), f"layer_{i}", use_bias, params)


def _layer(word, name, use_bias, params):
    layers = tf.keras.layers
    kind, arguments = word[0], word[1:]
    if kind == "conv":
        filters, kernel, padding = [*arguments, "same"][:3]
        return layers.Conv2D(
            int(filters), int(kernel), padding=padding, use_bias=use_bias, name=name
        )
    if kind == "dense":
        return layers.Dense(int(arguments[0]), use_bias=use_bias, name=name)
    if kind == "batch_norm":
        momentum, epsilon = params["batch_norm_momentum"], params["batch_norm_epsilon"]
        return layers.BatchNormalization(momentum=momentum, epsilon=epsilon, name=name)
    if kind == "pool":
        return layers.MaxPooling2D(int(arguments[0]), name=name)
    if kind == "dropout":
        return layers.Dropout(float(arguments[0]), name=name)
    simple = {
        "relu": layers.ReLU,
        "flatten": layers.Flatten,
        "global_pool": layers.GlobalAveragePooling2D,
    }
    return simple[kind](name=name)
