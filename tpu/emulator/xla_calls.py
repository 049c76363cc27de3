"""The results of XLA for one operation: when its inputs are invalid, and what to compute then."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import func_graph, ops

from tpu.emulator.invalid_values import RULES
from tpu.emulator.xla_rules import static_value
from tpu.graph import nodes as node_defs
from tpu.graph.walks import ancestors, root

_reported = set()
_masks = {}  # nodes by operation, attributes and shapes of its inputs
_traced = {}  # functions by operation and attributes; tracing one takes some 40 ms


def reset_warnings():
    """Forgets which operations had a warning."""
    _reported.clear()


def warn(text: str, shown: str = "") -> None:
    """Prints a warning, the first time; `shown` is printed instead of `text`, which names it."""
    if text not in _reported:
        _reported.add(text)
        print(f"tpu: warning: {shown or text}", file=sys.stderr, flush=True)


def report(text, value, limit):
    """Prints the warning about an operation, the first time."""
    text = text.decode()
    warn(text, text.replace("{value}", _show(value)).replace("{limit}", _show(limit)))
    return np.int32(0)


def _show(value):
    return f"{value:g}" if isinstance(value, np.floating) else str(value)


class Call(NamedTuple):
    """An operation while its function is traced.

    Attributes:
      node: its NodeDef.
      inputs: tensors, most of unknown shape.
      variable_shape: shape of the variable that is its first input; None if unknown.
    """

    node: node_def_pb2.NodeDef
    inputs: Sequence[tf.Tensor]
    variable_shape: tuple[int, ...] | None = None

    def attribute(self, name):
        """Returns the value of an integer or type attribute."""
        value = self.node.attr[name]
        return value.type or value.i

    def run(self, *inputs):
        """Adds the operation with these inputs; returns its outputs, or the operation."""
        attributes = {name: value for name, value in self.node.attr.items() if name[0] != "_"}
        types = node_defs.output_types(self.node)
        graph = ops.get_default_graph()
        # Python's default graph function would need the inputs as lists per argument.
        op = graph.create_op(self.node.op, list(inputs), types, attrs=attributes)
        return list(op.outputs) or [op]

    def compile(self):
        """Adds a call of the operation as XLA compiles it."""

        def run(*inputs):
            return _outputs(self.run(*inputs))

        return tf.nest.flatten(tf.function(run, autograph=False, jit_compile=True)(*self.inputs))


def _key(node):
    attributes = {
        name: value.SerializeToString(deterministic=True)
        for name, value in node.attr.items()
        if name[0] != "_"
    }
    return node.op, tuple(sorted(attributes.items()))


def mask(node, op):
    """Returns NodeDefs that compute whether inputs are invalid: the last, a bool tensor `[]`."""
    types = node_defs.input_types(node)
    known = (
        [_known(tensor) for tensor in op.inputs] if op is not None else [(None, None)] * len(types)
    )
    key = (*_key(node), *known)
    if key not in _masks:
        graph = func_graph.FuncGraph("mask")
        with graph.as_default():
            inputs = [
                tf.compat.v1.placeholder(dtype, shape, f"input_{i}")
                if value is None or dtype == tf.resource
                else tf.constant(value, dtype)
                for i, (dtype, (shape, value)) in enumerate(zip(types, known))
            ]
            variable_shape = known[0][1] if types[0] == tf.resource else None
            call = Call(node, inputs, variable_shape)
            is_invalid = tf.reduce_any(RULES[node.op].find(call)[0])
        found = ancestors([is_invalid.op])
        kept = [op for op in graph.get_operations() if op.name in found]
        _masks[key] = [op.node_def for op in kept if op.type != "Placeholder"]
    return _masks[key]


def _known(tensor):
    """Returns what is known of a tensor, else None: (shape, value).

    The value is that of an integer `[]`; for the handle of a variable, the shape of the variable.
    """
    if tensor.shape.rank is None:
        return None, None
    shape = tuple(tensor.shape.as_list())
    if tensor.dtype == tf.resource:
        handle = root(tensor).op
        is_variable = handle.type == "VarHandleOp"
        variable = tf.TensorShape(handle.get_attr("shape")) if is_variable else None
        is_static = variable is not None and variable.is_fully_defined()
        return shape, tuple(variable.as_list()) if is_static else None
    value = static_value(tensor) if tensor.dtype.is_integer and not shape else None
    return shape, None if value is None else int(value)


def function_for_invalid(node):
    """Returns the function that prints a warning, its first input, and computes the results."""
    key = _key(node)
    if key not in _traced:
        rule = RULES[node.op]

        def run(text, *inputs):
            call = Call(node, inputs)
            warnings = [_warn(text, *rule.find(call))] if rule.message else []
            with tf.control_dependencies(warnings):
                return _outputs(rule.repair(call) if rule.repair else call.compile())

        types = [tf.string, *node_defs.input_types(node)]
        signature = [tf.TensorSpec(None, dtype) for dtype in types]
        with context.eager_mode():
            function = tf.function(
                run, signature, autograph=False, experimental_attributes={"_noinline": True}
            )
            _traced[key] = function.get_concrete_function()
    return _traced[key]


def _warn(text, mask, values, limit):
    """Adds the warning about the first invalid value; returns the operation."""
    mask, values = tf.reshape(mask, [-1]), tf.reshape(values, [-1])
    limit = tf.broadcast_to(tf.reshape(limit, [-1]), tf.shape(values))
    first = tf.argmax(tf.cast(mask, tf.int32))
    return tf.numpy_function(report, [text, values[first], limit[first]], tf.int32, name="warn").op


def _outputs(outputs):
    """Returns at least one tensor, after all outputs."""
    if isinstance(outputs[0], tf.Operation):
        with tf.control_dependencies(outputs):
            return [tf.constant(0)]
    return [tf.identity(tensor) for tensor in outputs]
