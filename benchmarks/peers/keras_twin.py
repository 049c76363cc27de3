"""Our networks in `tf.keras`, with equal layers and weight names, for tests and benchmarks."""

from __future__ import annotations

import tensorflow as tf

from common.constants import IGNORED_CLASS
from models.vision import backbones, resnet


def build(params, image_shape):
    """Returns the Keras model with the hyperparameters of one of our models.

    Args:
      params: all hyperparameters; `hidden_units` selects an mlp, `layers` a convnet,
        `output_level` a unet with its own encoder, `depth` a resnet with basic blocks, and
        `version` a mobilenet.
      image_shape: `(height, width, channels)`.

    Raises:
      ValueError: hyperparameters without a Keras equivalent.
    """
    layers = tf.keras.layers
    inputs = layers.Input(image_shape)
    scaling = backbones.scaling(params) if "backbone" in params else params
    scale = scaling["pixel_scale"]
    offsets = [-scale * mean for mean in scaling["pixel_mean"]]
    x = layers.Rescaling(scale, offsets)(inputs)
    if "output_level" in params:
        return tf.keras.Model(inputs, _unet(x, params))
    if "depth" in params:
        x = _resnet(x, params)
    elif "version" in params:
        x = _mobilenet(x, params)
    else:
        for layer in _mlp(params) if "hidden_units" in params else _convnet(params):
            x = layer(x)
    return tf.keras.Model(inputs, layers.Dense(params["num_classes"], name="logits")(x))


def compiled(params, image_shape, **more):
    """Returns the model of `build`, compiled with a constant rate; `more` are compile arguments."""
    is_unet = "output_level" in params
    unsupported = {"label_smoothing": 0, "class_weights": "none", "target": "classification"}
    for name, off in unsupported.items():
        if not is_unet and params[name] != off:
            raise ValueError(f"no twin has {name}={params[name]}")
    twin = build(params, image_shape)
    ignored = IGNORED_CLASS if is_unet else None
    twin.compile(
        optimizer(params, params["learning_rate"]),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=ignored),
        metrics=["accuracy"],
        **more,
    )
    return twin


def optimizer(params, learning_rate):
    """Returns the Keras optimizer with these hyperparameters.

    Raises:
      ValueError: hyperparameters without a Keras equivalent.
    """
    _check_supported(params)
    keras = tf.keras.optimizers
    average = {"use_ema": params["ema_decay"] > 0, "ema_momentum": params["ema_decay"]}
    if params["optimizer"] == "momentum":
        return keras.SGD(learning_rate, params["momentum"], params["nesterov"], **average)
    adam = {
        **average,
        "beta_1": params["beta1"],
        "beta_2": params["beta2"],
        "epsilon": params["epsilon"],
    }
    if params["optimizer"] == "adamw":
        return keras.AdamW(learning_rate, params["weight_decay"], **adam)
    return keras.Adam(learning_rate, **adam)


def _check_supported(params):
    """Raises ValueError for hyperparameters that the optimizers of the twins lack."""
    if params["optimizer"] not in ("momentum", "adam", "adamw"):
        raise ValueError(f"no twin has optimizer={params['optimizer']}")
    if params["weight_decay"] and params["optimizer"] != "adamw":
        raise ValueError(f"no twin has weight_decay={params['weight_decay']} as L2")
    for name in ("clip_norm", "learning_rate_factors", "trainable"):
        if params[name] and params[name] != ".*":
            raise ValueError(f"no twin has {name}={params[name]}")


def v1_optimizer(params):
    """Returns the `tf.compat.v1` optimizer with these hyperparameters and a constant rate."""
    _check_supported(params)
    for name in ("ema_decay", "weight_decay"):
        if params[name]:
            raise ValueError(f"the twin of tf.compat.v1 has no {name}={params[name]}")
    train, rate = tf.compat.v1.train, params["learning_rate"]
    if params["optimizer"] == "momentum":
        return train.MomentumOptimizer(rate, params["momentum"], use_nesterov=params["nesterov"])
    return train.AdamOptimizer(rate, params["beta1"], params["beta2"], params["epsilon"])


def set_weights(twin, variables):
    """Sets the weights of a twin from `{name in our checkpoint: array}`."""
    for layer in twin.layers:
        names = [weight.name.split("/")[-1].split(":")[0] for weight in layer.weights]
        layer.set_weights([variables[f"{layer.name}/{name}"] for name in names])


def _resnet(x, params):
    layers = tf.keras.layers
    blocks, has_bottlenecks = resnet.DEPTHS[params["depth"]]
    if has_bottlenecks or params["stem"] != "cifar":
        raise ValueError(f"no twin has depth={params['depth']} with stem={params['stem']}")
    for name in ("stochastic_depth", "dropout"):
        if params[name]:
            raise ValueError(f"no twin of a resnet has {name}={params[name]}")
    x = _conv(x, params, "stem/conv", "stem/batch_norm", params["width"], 3)
    x = layers.ReLU()(x)
    for stage, count in enumerate(blocks):
        for i in range(count):
            x = _basic(x, params, f"stage_{stage + 1}/block_{i + 1}", 2**stage, not i)
    return layers.GlobalAveragePooling2D()(x)


def _basic(x, params, scope, factor, is_first):
    layers = tf.keras.layers
    filters, shortcut, strides = params["width"] * factor, x, 1
    if is_first and factor > 1:
        strides = 2
        names = f"{scope}/shortcut/conv", f"{scope}/shortcut/batch_norm"
        shortcut = _conv(x, params, *names, filters, 1, 2)
        x = layers.ZeroPadding2D(1)(x)
    names = f"{scope}/conv_1", f"{scope}/batch_norm_1"
    x = layers.ReLU()(_conv(x, params, *names, filters, 3, strides))
    x = _conv(x, params, f"{scope}/conv_2", f"{scope}/batch_norm_2", filters, 3)
    return layers.ReLU()(layers.Add()([shortcut, x]))


def _conv(x, params, name, norm_name, filters, kernel_size, strides=1):
    layers = tf.keras.layers
    padding = "valid" if strides == 2 else "same"
    x = layers.Conv2D(
        filters,
        kernel_size,
        strides,
        padding,
        use_bias=False,
        kernel_initializer="he_normal",
        name=name,
    )(x)
    momentum, epsilon = params["batch_norm_momentum"], params["batch_norm_epsilon"]
    return layers.BatchNormalization(momentum=momentum, epsilon=epsilon, name=norm_name)(x)


def _unet(x, params):
    layers = tf.keras.layers
    wanted = {"backbone": "own", "output_level": 0, "dropout": 0, "class_weights": ()}
    for name, value in {**wanted, "losses": ("cross_entropy",)}.items():
        if params[name] != value:
            raise ValueError(f"no twin of a unet has {name}={params[name]}")

    def double_conv(x, scope, filters):
        for i in (1, 2):
            names = f"{scope}/conv_{i}", f"{scope}/batch_norm_{i}"
            x = layers.ReLU()(_conv(x, params, *names, filters, 3))
        return x

    skips = []
    for level in range(params["depth"] + 1):
        x = layers.MaxPooling2D(2, padding="same")(x) if level else x
        x = double_conv(x, f"encoder/level_{level}", params["width"] * 2**level)
        skips.append(x)
    for level in reversed(range(params["depth"])):
        filters, scope, skip = params["width"] * 2**level, f"decoder/level_{level}", skips[level]
        x = layers.Conv2DTranspose(filters, 2, 2, use_bias=False, name=f"{scope}/up")(x)
        odd = [int(x.shape[axis]) - int(skip.shape[axis]) for axis in (1, 2)]
        x = layers.Cropping2D([(0, odd[0]), (0, odd[1])])(x) if any(odd) else x
        x = double_conv(layers.Concatenate()([x, skip]), scope, filters)
    return layers.Conv2D(params["num_classes"], 1, name="logits")(x)


def _mobilenet(x, params):
    applications = tf.keras.applications
    network = applications.MobileNet if params["version"] == 1 else applications.MobileNetV2
    body = network(
        x.shape[1:], params["width"], include_top=False, weights=None, pooling="avg", input_tensor=x
    )
    return tf.keras.layers.Dropout(params["dropout"])(body.output)


def _mlp(params):
    layers = tf.keras.layers
    yield layers.Flatten()
    for i, units in enumerate(params["hidden_units"]):
        yield layers.Dense(units, "relu", name=f"dense_{i}")
        yield layers.Dropout(params["dropout"])


def _convnet(params):
    words = params["layers"]
    for i, word in enumerate(words):
        use_bias = "batch_norm" not in words[i + 1 : i + 2]
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
