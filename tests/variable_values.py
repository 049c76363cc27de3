"""Values for the variables of a graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf


def assign_all(session: tf.compat.v1.Session, value_of: Callable) -> dict[str, np.ndarray]:
    """Sets all variables of the session's graph in one run, which is faster than a load each.

    Args:
      session: session.
      value_of: function from a variable to its value.

    Returns:
      `{name: value}`.
    """
    variables = session.graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    values = {variable.op.name: value_of(variable) for variable in variables}
    initial = {v.initializer.inputs[1]: values[v.op.name] for v in variables}
    session.run([variable.initializer for variable in variables], initial)
    return values


def random_value(variable: tf.Variable) -> np.ndarray:
    """Returns random values that keep the scale of activations; scales and shifts are about 1."""
    shape = variable.shape.as_list()
    random = np.random.default_rng([*variable.name.encode()])
    if len(shape) < 2:
        return np.exp(random.normal(0, 0.1, shape)).astype(variable.dtype.as_numpy_dtype)
    fan_in = np.prod(shape[:-1])
    return random.normal(0, (1 / fan_in) ** 0.5, shape)
