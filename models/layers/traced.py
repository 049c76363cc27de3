"""Builds a function of TensorFlow 2, such as the call of a Keras model, in the graph of a model.

The function is traced in eager mode, where its variables are, and called with variables of the
model's graph in their place. So all that TensorFlow 2 knows works under an Estimator: Keras layers
of any kind, batch norm with its updates, custom gradients, functions of a SavedModel.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python import tf2
from tensorflow.python.eager import context
from tensorflow.python.framework import tensor_shape

from models.model import ModelError

_CUSTOM_GRADIENT = "_gradient_op_type"
_MAX_CONSTANT_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Source:
    """An eager variable, and how the variable of the graph that takes its place starts.

    Attributes:
      variable: the eager variable.
      initial_value: `() -> tensor`, called in the graph.
      trainable: whether it gets gradients.
    """

    variable: tf.Variable
    initial_value: Callable[[], Any]
    trainable: bool


@contextlib.contextmanager
def tensorflow_2():
    """Executes eagerly and with the behaviour of TensorFlow 2, inside the construction of a graph.

    `engine.cli.runtime.prepare` enables that of TensorFlow 1 for the rest. A strategy and variable
    creators of the graph do not apply.
    """
    was_enabled, had_equality = tf2.enabled(), tf.Tensor._USE_EQUALITY
    had_shapes = tensor_shape._TENSORSHAPE_V2_OVERRIDE
    tf2.enable()
    tf.Tensor._USE_EQUALITY = tensor_shape._TENSORSHAPE_V2_OVERRIDE = True
    try:
        # Both are read from the default graph, in eager mode too.
        with tf.Graph().as_default(), context.eager_mode():
            yield
    finally:
        if not was_enabled:
            tf2.disable()
        tf.Tensor._USE_EQUALITY = had_equality
        tensor_shape._TENSORSHAPE_V2_OVERRIDE = had_shapes


def unused_name(name: str, names: Mapping[str, Any]) -> str:
    """Returns a name for a variable, with a number behind it if `names` have it already."""
    numbered = (f"{name}_{i}" if i else name for i in range(len(names) + 1))
    return next(found for found in numbered if found not in names)


def call(
    function: Callable, sources: Mapping[str, Source], inputs: tf.Tensor, training: bool
) -> Any:
    """Builds `function(inputs)` in the current graph.

    Its updates of variables, such as of moving averages, run whenever one of its results is used.

    Args:
      function: traced once, in eager mode.
      sources: `{name: Source}`, the variables that the function may use, by their names in the
        graph and in checkpoints. All of them are created, used or not.
      inputs: with a static shape.
      training: False leaves out custom gradients, which an exported graph must not need.

    Returns:
      What `function` returned, as tensors of the current graph.

    Raises:
      ModelError: the function uses a variable that is not among `sources`, or a large constant.
    """
    graph = tf.compat.v1.get_default_graph()

    def with_overrides(inputs):
        inner = tf.compat.v1.get_default_graph()
        with inner.gradient_override_map(graph._gradient_override_map):
            results = function(inputs)
        for op in () if training else inner.get_operations():
            if _CUSTOM_GRADIENT in op.node_def.attr:
                op._clear_attr(_CUSTOM_GRADIENT)
        return results

    with tensorflow_2(), _global_seed(graph.seed):
        spec = tf.TensorSpec(inputs.shape, inputs.dtype)
        traced = tf.function(with_overrides, autograph=False).get_concrete_function(spec)
    variables = {
        id(source.variable.handle): _variable(name, source) for name, source in sources.items()
    }
    captured = [
        variables[id(outside)].handle if id(outside) in variables else _constant(outside)
        for outside, _ in traced.graph.captures
    ]
    return traced._call_flat([inputs], captured)


@contextlib.contextmanager
def _global_seed(seed):
    """Seeds random ops of a traced function, such as those of dropout, as those of the graph."""
    before = context.global_seed()
    tf.random.set_seed(seed)
    try:
        yield
    finally:
        tf.random.set_seed(before)


def _variable(name, source):
    variable = source.variable
    return tf.compat.v1.get_variable(
        name,
        variable.shape,
        variable.dtype,
        initializer=lambda shape, dtype=None, **_: source.initial_value(),
        trainable=source.trainable,
        synchronization=variable.synchronization,
        aggregation=variable.aggregation,
        use_resource=True,
    )


def _constant(captured):
    """Returns a captured eager tensor as a constant."""
    if captured.dtype == tf.resource:
        raise ModelError(
            "the network uses a variable or a table that is not one of its weights. Make it an "
            "attribute of a layer"
        )
    if captured.dtype.size * captured.shape.num_elements() > _MAX_CONSTANT_BYTES:
        raise ModelError(
            f"the network uses a constant of shape {captured.shape}. Make it a weight of a layer"
        )
    return tf.constant(captured.numpy())
