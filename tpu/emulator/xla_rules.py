"""Rules about values that a kernel for a CPU refuses or computes otherwise than a TPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from tpu.graph.walks import root

RULES = {}  # {operation type: Rule}
_UNSIGNED = {tf.int32: tf.uint32, tf.int64: tf.uint64}


@dataclasses.dataclass(frozen=True)
class Rule:
    """How to handle invalid inputs of an operation.

    Attributes:
      find: function from a `xla_calls.Call` to (mask, values, limit): a bool tensor, true where an
        input is invalid; the values to show, of the same shape; and the number to show as
        `{limit}`.
      message: what the operation does, and what a TPU does; with `{value}` and `{limit}`. "" if the
        values are valid, and only the kernel for a CPU refuses them.
      is_safe: function from a tf.Operation to True if its inputs are known to be valid.
      repair: function from a `Call` to the results on a TPU; None to let XLA compute them.
    """

    find: Callable
    message: str
    is_safe: Callable
    repair: Callable | None


def rule(*operations: str, message: str = "", is_safe=lambda op: False, repair=None):
    """Registers the decorated function as `find` of the rule of operation types; see `Rule`."""

    def register(find):
        RULES.update(dict.fromkeys(operations, Rule(find, message, is_safe, repair)))
        return find

    return register


def static_value(tensor):
    """Returns the value of a constant, also in a loop; None if unknown."""
    return tf.get_static_value(root(tensor))


def outside(values, limit):
    """Finds integers that are not in [0, limit); returns (mask, values, limit)."""
    limit = cast(limit, values.dtype)
    if values.dtype in _UNSIGNED:  # one comparison is enough
        unsigned = _UNSIGNED[values.dtype]
        return tf.bitcast(values, unsigned) >= cast(limit, unsigned), values, limit
    return (values < 0) | (values >= limit), values, limit


def cast(value, dtype):
    """Returns a tensor of a dtype, a constant if its value is known."""
    known = tf.get_static_value(value)
    return tf.cast(value, dtype) if known is None else tf.constant(known, dtype)


def static_size(tensor, axis):
    """Returns the size of an axis; None if the axis or its size is unknown."""
    if axis is None or tensor.shape.rank is None:
        return None
    # A program may disable the shapes of version 2: an element is then a Dimension, never None.
    return tensor.shape.as_list()[int(axis)]


def dimension(tensor, axis):
    """Returns the size of an axis, a constant if it is known."""
    size = static_size(tensor, tf.get_static_value(axis))
    return tf.shape(tensor, tf.int64)[axis] if size is None else tf.constant(size, tf.int64)
