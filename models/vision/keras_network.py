"""Networks of Keras as inference functions: `--model=keras:NETWORK`.

NETWORK is an application, such as `tf.keras.applications.EfficientNetV2B0`, without its top, or
`package.module:FUNCTION`, a function that returns a `tf.keras.Model` of images. Variables have
their names in Keras; `logits` is the dense layer that follows.

The network is a `tf.keras.Model` of TensorFlow 2, traced and called in the graph of the Estimator
(`models.layers.traced`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import random
import re
import sys
import warnings
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from common.messages import did_you_mean
from common.names import counted
from models import targets
from models.layers import traced
from models.model import Loss, ModelError, check_fractions
from models.registry import attribute
from models.vision import classifier, tta

_POLICIES = {"bfloat16": "mixed_bfloat16"}
_APPLICATIONS = "tf.keras.applications."
# Arguments of applications that belong to their top, or that this module sets.
_NOT_HYPERPARAMETERS = {
    "include_top", "weights", "input_tensor", "input_shape", "pooling", "classes",
    "classifier_activation", "model_name", "dropout", "dropout_rate",
}  # fmt: skip


def find(path):
    """Returns the Model of `--model=keras:<path>`.

    Raises:
      ModelError: an unknown application, or a function that is missing, has an argument without a
        default other than `input_shape` and `num_classes`, or one named as another hyperparameter.
    """
    network = _network(path)

    def default_params():
        return {**_default_params(), **network.hyperparameters}

    def check_params(params):
        targets.check_params(params)
        tta.check_params(params)
        if not network.has_dropout:
            check_fractions(params, "dropout")

    def unused_params(params):
        del params
        is_unused = network.makes_logits and not network.has_dropout
        return {"dropout": "num_classes"} if is_unused else {}

    def inference(features, params, training):
        return _inference(network, features, params, training)

    return model(f"keras:{path}", default_params, inference, check_params, unused_params)


def model(name, default_params, inference, check_params, unused_params=lambda params: {}):
    """Returns the Model of an image classifier whose layers may add losses."""
    made = classifier.model(name, default_params, inference, check_params, unused_params)
    return dataclasses.replace(made, losses=_losses)


def _default_params():
    """Returns the hyperparameters of loss, predictions and last layer."""
    params = classifier.default_params()
    for name in ("pixel_mean", "pixel_scale"):
        del params[name]
    return {**params, "dropout": 0.0}


def first_line(error):
    """Returns the first line of an error of Keras or TensorFlow."""
    return str(error).strip().partition("\n")[0]


def _losses(features, labels, outputs, params):
    """The loss of the target, and the sum of those that layers add, such as of regularizers."""
    terms = targets.losses(features, labels, outputs, params)
    if "layer_losses" in outputs:
        terms["layer_losses"] = Loss(outputs["layer_losses"])
    return terms


@dataclasses.dataclass(frozen=True, eq=False)
class _Network:
    """A function that makes a network.

    Attributes:
      path: of the function, for messages.
      make: `(**arguments) -> tf.keras.Model`.
      preprocess: float32 images `[batch, height, width, channels]`, 0 to 255, to its inputs.
      hyperparameters: `{name: default}`, arguments that --params sets.
      takes: other arguments that it takes, of `input_shape` and `num_classes`.
    """

    path: str
    make: Callable
    preprocess: Callable
    hyperparameters: dict
    takes: frozenset

    @property
    def makes_logits(self):
        """Whether the outputs are logits of the classes."""
        return "num_classes" in self.takes

    @property
    def has_dropout(self):
        """Whether `dropout` is its argument, so that none precedes the last layer."""
        return "dropout" in self.hyperparameters


@functools.cache
def _network(path):
    return _application(path) if path.startswith(_APPLICATIONS) else _function(path)


def _application(path):
    module, _, name = path[len(_APPLICATIONS) :].rpartition(".")
    functions = getattr(tf.keras.applications, module, None) if module else tf.keras.applications
    make = getattr(functions, name, None)
    if not inspect.isfunction(make):
        known = [name for name, value in vars(tf.keras.applications).items() if callable(value)]
        raise ModelError(f"--model=keras:{path} is unknown.{did_you_mean(name, known)}")
    hyperparameters = {
        name: parameter.default
        for name, parameter in inspect.signature(make).parameters.items()
        if name not in _NOT_HYPERPARAMETERS and parameter.kind is not parameter.VAR_KEYWORD
    }
    preprocess_input = sys.modules[make.__module__].preprocess_input

    def preprocess(images):
        try:
            return preprocess_input(images)
        except ValueError as error:  # of another number of channels than its means
            channels = counted(images.shape[-1], "channel")
            raise ModelError(
                f"--model=keras:{path}: its preprocess_input needs RGB images, and the data set "
                f"has {channels}. Prepare it with --channels=3, or use another network"
            ) from error

    return _Network(
        path,
        functools.partial(make, include_top=False, weights=None),
        preprocess,
        hyperparameters,
        frozenset(["input_shape"]),
    )


def _function(path):
    make = attribute("model", path)
    if not callable(make):
        module, _, name = path.partition(":")
        raise ModelError(f"--model=keras:{path}: {module} has no function '{name}'")
    takes, hyperparameters = set(), {}
    taken = _default_params().keys() - {"num_classes", "dropout"}
    for name, parameter in inspect.signature(make).parameters.items():
        if name in ("input_shape", "num_classes"):
            takes.add(name)
        elif name in taken:
            raise ModelError(
                f"--model=keras:{path}: its argument '{name}' is a hyperparameter of every "
                "classifier. Rename it"
            )
        elif isinstance(parameter.default, (bool, int, float, str)):
            hyperparameters[name] = parameter.default
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise ModelError(
                f"--model=keras:{path}: its argument '{name}' has no default. Only input_shape and "
                "num_classes may have none"
            )
    return _Network(path, make, lambda images: images, hyperparameters, frozenset(takes))


def _inference(network, features, params, training):
    """Computes class logits of images.

    Args:
      network: a `_Network`.
      features: `{"image": uint8 or float32 [batch, height, width, channels]}`, 0 to 255.
      params: see `find`.
      training: True runs layers as Keras does in training, but those whose variables
        `params["trainable"]` freezes as in prediction.

    Returns:
      `{"logits": [batch, num_classes]}` of `params["precision"]`, and in training
      "layer_losses", float32 `[batch]`, if layers add losses: their sum, for each example.
    """
    images = tf.cast(features["image"], tf.float32)
    built = _build(
        network, images.shape.as_list()[1:], params, tf.compat.v1.get_default_graph().seed
    )

    def call(images):
        built.finalize()  # normalization layers compute with the variables, not with their values
        outputs = built.model(network.preprocess(images), training=training)
        _check_outputs(network, outputs, params["num_classes"])
        losses = [tf.cast(loss, built.model.variable_dtype) for loss in built.model.losses]
        return {"outputs": outputs, "losses": losses}

    with _prepared(built, params["trainable"]):
        results = traced.call(call, built.sources, images, training)
    head = {**params, "dropout": 0.0} if network.has_dropout else params
    return logits_and_losses(results, head, training, network.makes_logits)


def logits_and_losses(results, params, training, makes_logits=False):
    """Returns the outputs of an inference function from those of a network.

    Args:
      results: `{"outputs": [batch, features] or [batch, height, width, features], "losses":
        scalars}`.
      params: hyperparameters.
      training: see `classifier.logits`.
      makes_logits: True if the outputs are logits; else the last layer is added.
    """
    x = results["outputs"]
    if not makes_logits:
        head = classifier.pooled_logits if x.shape.rank == 4 else classifier.logits
        x = head(x, params, training)
    outputs = {"logits": x}
    if training and results["losses"]:
        outputs["layer_losses"] = tf.fill([x.shape[0]], tf.add_n(results["losses"]))
    return outputs


def _check_outputs(network, outputs, num_classes):
    """Raises `ModelError` unless they are features or feature maps, or logits if it makes them."""
    if not isinstance(outputs, tf.Tensor) or outputs.shape.rank not in (2, 4):
        raise ModelError(
            f"--model=keras:{network.path} must have one output [batch, features] or [batch, "
            f"height, width, features], not {outputs}"
        )
    if network.makes_logits and outputs.shape.as_list()[1:] != [num_classes]:
        raise ModelError(
            f"--model=keras:{network.path} takes num_classes={num_classes}, but its output has the "
            f"shape {outputs.shape}"
        )
    if network.makes_logits and outputs.op.type in ("Softmax", "Sigmoid"):
        raise ModelError(
            f"--model=keras:{network.path} returns probabilities. Let its last layer return logits,"
            " without an activation"
        )


@dataclasses.dataclass(frozen=True)
class Built:
    """A network in eager mode.

    Attributes:
      model: the tf.keras.Model.
      sources: `{name: traced.Source}` of its variables.
      layers: its layers, also those of layers.
      preprocess: float32 images `[batch, height, width, channels]`, 0 to 255, to its inputs.
      makes_logits: whether its outputs are logits of the classes.
      has_dropout: whether `dropout` is an argument of its function.
    """

    model: tf.keras.Model
    sources: dict
    layers: tuple
    preprocess: Callable
    makes_logits: bool
    has_dropout: bool

    def finalize(self):
        """Lets normalization layers compute with the present values of their variables."""
        for layer in self.layers:
            if hasattr(layer, "finalize_state"):
                layer.finalize_state()


def build(path, image_shape, params):
    """Returns the `Built` of `--model=keras:<path>`, with random weights, for use in eager mode.

    Args:
      path: see `find`.
      image_shape: `(height, width, channels)`.
      params: hyperparameters.

    Raises:
      ModelError: as `find`, or Keras cannot build the network.
    """
    return _build(_network(path), image_shape, params, None)


def _build(network, image_shape, params, seed):
    arguments = {name: params[name] for name in network.hyperparameters}
    given = {"input_shape": tuple(image_shape), "num_classes": params["num_classes"]}
    arguments.update((name, given[name]) for name in network.takes)
    return _cached(network, tuple(image_shape), tuple(arguments.items()), params["precision"], seed)


@functools.lru_cache(maxsize=1)
def _cached(network, image_shape, arguments, precision, seed):
    """Builds a network; the last one is kept for the next graph."""
    initial_values = {}

    def creator(next_creator, **kwargs):
        if kwargs.get("dtype") == tf.bfloat16:  # the statistics of a Normalization layer
            start = functools.partial(_as_float32, kwargs["initial_value"])
            kwargs.update(dtype=tf.float32, initial_value=start)
        variable = next_creator(**kwargs)
        initial_values[id(variable.handle)] = kwargs["initial_value"]
        return variable

    with traced.tensorflow_2(), _keras_state(precision, seed), tf.variable_creator_scope(creator):
        try:
            model = network.make(**dict(arguments))
            if isinstance(model, tf.keras.Model) and not model.built:
                model(tf.keras.Input(image_shape))
        except (ValueError, TypeError) as error:
            raise ModelError(f"--model=keras:{network.path}: {first_line(error)}") from error
        if not isinstance(model, tf.keras.Model):
            raise ModelError(
                f"--model=keras:{network.path} must return a tf.keras.Model, not "
                f"{type(model).__name__}"
            )
        sources, trainable = {}, {id(variable.handle) for variable in model.trainable_variables}
        for variable in model.variables:
            key = id(variable.handle)
            name = traced.unused_name(variable.name.partition(":")[0], sources)
            start = functools.partial(_initial_value, initial_values[key])
            sources[name] = traced.Source(variable, start, key in trainable)
        _check_not_loaded(network.path, sources)
    layers = [layer for layer in model.submodules if isinstance(layer, tf.keras.layers.Layer)]
    return Built(
        model,
        sources,
        tuple(layers),
        network.preprocess,
        network.makes_logits,
        network.has_dropout,
    )


@contextlib.contextmanager
def _keras_state(precision, seed):
    """Builds layers by their names, precision and random numbers only."""
    state = random.getstate()
    tf.keras.backend.reset_uids()
    tf.keras.mixed_precision.set_global_policy(_POLICIES.get(precision, precision))
    random.seed(seed)  # of the initializers
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(None)  # follows tf.keras.backend.floatx again
        random.setstate(state)


def _as_float32(value):
    return tf.cast(value() if callable(value) else value, tf.float32)


def _initial_value(value):
    with warnings.catch_warnings():
        # Each graph starts with the same values.
        warnings.filterwarnings("ignore", "The initializer .* is unseeded")
        return value() if callable(value) else value


def _check_not_loaded(path, sources):
    """Raises `ModelError` for weights that the function loads, which an Estimator would not."""
    for name, source in sources.items():
        if not np.array_equal(source.variable.numpy(), source.initial_value()):
            raise ModelError(
                f"--model=keras:{path} loads values of {name}. Let it return the network without "
                "weights, and use --warm_start_from (python -m tools.keras_network)"
            )


@contextlib.contextmanager
def _prepared(built, pattern):
    """Freezes the layers without a variable whose name matches the pattern, as Keras does."""
    with traced.tensorflow_2():
        for kind in {type(layer) for layer in built.layers}:
            # A layer of tf.compat.v1.layers turns the classes of Keras into those of TensorFlow 1.
            tf.keras.layers.Layer.__new__(kind)
    names = {id(source.variable.handle): name for name, source in built.sources.items()}
    before = [(layer, layer.trainable) for layer in built.layers]
    for layer, _ in before:
        found = [names[id(variable.handle)] for variable in layer.variables]
        if found and not any(re.fullmatch(pattern, name) for name in found):
            layer.trainable = False
    try:
        yield
    finally:
        for layer, was_trainable in before:
            layer.trainable = was_trainable
