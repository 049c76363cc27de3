"""Gives operations the results of XLA for the values of `invalid_values`, with one warning.

An operation with a `Rule` becomes a call of a function: it runs the kernel for a CPU, or, if the
inputs are invalid, prints a warning and runs the operation as XLA compiles it. Compiled functions
are left as they are.
"""

from __future__ import annotations

import contextlib
import sys

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import op_def_registry, ops
from tensorflow.python.ops import cond_v2

from tpu import findings
from tpu.emulator import functions, kernels, variable_order
from tpu.emulator.graph_analysis import kind_of
from tpu.emulator.invalid_values import RULES

_reported = set()
_traced = {}  # functions by operation, attributes and line; tracing one takes some 40 ms


def reset_warnings():
    """Forgets which operations had a warning."""
    _reported.clear()


def report(text, value, limit):
    """Prints the warning about an operation, the first time."""
    text = text.decode()
    if text not in _reported:
        _reported.add(text)
        shown = text.replace("{value}", _show(value)).replace("{limit}", _show(limit))
        print(f"tpu: warning: {shown}", file=sys.stderr, flush=True)
    return np.int32(0)


def _show(value):
    return f"{value:g}" if isinstance(value, np.floating) else str(value)


class Call:
    """An operation while its function is traced.

    Attributes:
      node: its NodeDef.
      inputs: tensors of unknown shape.
    """

    def __init__(self, node, inputs):
        self.node = node
        self.inputs = inputs

    def attribute(self, name):
        """Returns the value of an integer or type attribute."""
        value = self.node.attr[name]
        return value.type or value.i

    def run(self, *inputs):
        """Adds the operation with these inputs; returns its outputs, or the operation."""
        attributes = {name: value for name, value in self.node.attr.items() if name[0] != "_"}
        types = kernels.output_types(self.node)
        graph = ops.get_default_graph()
        # Python's default graph function would need the inputs as lists per argument.
        op = graph.create_op(self.node.op, list(inputs), types, attrs=attributes)
        return list(op.outputs) or [op]

    def compile(self):
        """Adds a call of the operation as XLA compiles it."""

        def run(*inputs):
            return self.run(*inputs)

        return tf.nest.flatten(tf.function(run, autograph=False, jit_compile=True)(*self.inputs))


class Rewriter:
    """Rewrites the nodes and functions of a graph.

    Attributes:
      functions: FunctionDefs that replace functions of the graph.
    """

    def __init__(self, graph, library):
        """Rewrites nothing yet.

        Args:
          graph: the graph, which gets the new functions.
          library: its `functions.Library`.
        """
        self._graph = graph
        self._library = library
        self.functions = []
        self._new_names = {}

    def rewrite(self, node, op, where: str):
        """Rewrites a NodeDef, unless its values are known to be valid.

        Args:
          node: the NodeDef.
          op: its tf.Operation; None if unknown.
          where: "file:line" of the user's code; "" if unknown.

        Returns:
          True if it changed.
        """
        if node.op in RULES:
            return self._rewrite_operation(node, op, where)
        changed = False
        if node.op != "SymbolicGradient":  # XLA's results have no gradient
            for reference in functions.references(node):
                new = self._rewritten(reference.name)
                changed = changed or new != reference.name
                reference.name = new
            if self._library.find(node.op) is not None:
                new = self._rewritten(node.op)
                changed = changed or new != node.op
                node.op = new
        if changed:
            node.op = functions.STATEFUL.get(node.op, node.op)
        return changed

    def _rewrite_operation(self, node, op, where):
        rule = RULES[node.op]
        if not kernels.has_cpu_kernel(node) or (op is not None and rule.is_safe(op)):
            return False
        attributes = {
            name: value.SerializeToString(deterministic=True)
            for name, value in node.attr.items()
            if name[0] != "_"
        }
        key = (node.op, where, tuple(sorted(attributes.items())))
        if key not in _traced:
            _traced[key] = _trace(node, rule, where)
        function = _traced[key]
        function.add_to_graph(self._graph)
        types = kernels.input_types(node), kernels.output_types(node)
        node.op = "StatefulPartitionedCall"
        node.attr.clear()
        node.attr["Tin"].list.type.extend(types[0])
        node.attr["Tout"].list.type.extend(
            types[1] or [tensor.dtype.as_datatype_enum for tensor in function.outputs]
        )
        node.attr["f"].func.name = function.name.decode()
        return True

    def _rewritten(self, name):
        """Returns the name of the function that replaces a function."""
        if name not in self._new_names:
            self._new_names[name] = name  # in case it calls itself
            definition = self._library.find(name)
            if definition is not None and not self._library.stays_compiled(name):
                self._new_names[name] = self._rewrite_function(name, definition)
        return self._new_names[name]

    def _rewrite_function(self, name, original):
        definition = function_pb2.FunctionDef()
        definition.CopyFrom(original)
        renamed = {}
        changed = self._order_variables(name, definition)
        for node in definition.node_def:
            before = node_def_pb2.NodeDef()
            before.CopyFrom(node)
            op = self._library.operation(name, node.name)
            where = findings.user_line(op) if op is not None else ""
            if not self.rewrite(node, op, where):
                continue
            changed = True
            if node.op == before.op or before.op not in RULES:
                continue
            names = kernels.output_names(before, op_def_registry.get(before.op))
            for i, output in enumerate(names):
                renamed[f"{node.name}:{output}"] = f"{node.name}:output:{i}"
        if not changed:
            return name
        for node in definition.node_def:
            inputs = [renamed.get(tensor, tensor) for tensor in node.input]
            del node.input[:]
            node.input.extend(inputs)
        for result, tensor in definition.ret.items():
            definition.ret[result] = renamed.get(tensor, tensor)
        definition.signature.name = f"{name}_on_tpu_{ops.uid()}"
        definition.signature.is_stateful = True
        self._library.add(definition, name)
        self.functions.append(definition)
        return definition.signature.name

    def _order_variables(self, name, definition):
        """Adds control inputs that order accesses to variables; returns True if there are any.

        tf.function orders them itself; loops and conditionals in a graph of version 1 do not.
        """
        body = self._library.body(name)
        operations = body.get_operations() if body is not None else []
        if any(kind_of(op) in ("Enter", "Switch") for op in operations):
            return False
        nodes = {node.name: node for node in definition.node_def}
        changed = False
        for first, later in variable_order.order_accesses(operations):
            if first.name in nodes and later.name in nodes:
                inputs = nodes[later.name].input
                if f"^{first.name}" not in inputs:
                    inputs.append(f"^{first.name}")
                    changed = True
        return changed


def _trace(node, rule, where):
    """Returns the function that replaces an operation."""
    text = f"{node.op} at {where or 'an unknown line'} {rule.message}"

    def run(*inputs):
        call = Call(node, inputs)
        mask, values, limit = rule.find(call)

        def invalid():
            with contextlib.ExitStack() as stack:
                if rule.message:
                    warning = _warn(text, mask, values, limit)
                    stack.enter_context(tf.control_dependencies([warning]))
                return _outputs(rule.repair(call) if rule.repair else call.compile())

        def valid():
            return _outputs(call.run(*inputs))

        return cond_v2.cond_v2(tf.reduce_any(mask), invalid, valid, "are_values_invalid")

    types = map(tf.as_dtype, kernels.input_types(node))
    signature = [tf.TensorSpec(None, dtype) for dtype in types]
    with context.eager_mode():
        function = tf.function(run, signature, autograph=False)
        return function.get_concrete_function()


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
