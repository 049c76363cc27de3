"""Gives operations the results of XLA for the values of `invalid_values`, with one warning.

An operation with a `Rule` moves into a conditional of version 1: it runs the kernel for a CPU, or,
if the inputs are invalid, calls a function that prints a warning and runs the operation as XLA
compiles it. The conditional consists of nodes, because a call in each step takes several times as
long. Compiled functions are left as they are.
"""

from __future__ import annotations

import sys

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import func_graph, op_def_registry, ops

from tpu import findings
from tpu.emulator import functions, kernels, variable_order
from tpu.emulator.graph_analysis import ancestors, kind_of, root
from tpu.emulator.invalid_values import RULES, static_value

_reported = set()
_masks = {}  # nodes by operation, attributes and shapes of its inputs
_traced = {}  # functions by operation and attributes; tracing one takes some 40 ms


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
      inputs: tensors, most of unknown shape.
      variable_shape: shape of the variable that is its first input; None if unknown.
    """

    def __init__(self, node, inputs, variable_shape=None):
        self.node = node
        self.inputs = inputs
        self.variable_shape = variable_shape

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
            return _outputs(self.run(*inputs))

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

    def rewrite(self, node, op, where: str) -> list:
        """Returns the NodeDefs that replace a NodeDef of a graph: itself, if it needs no other.

        Args:
          node: the NodeDef, which may change.
          op: its tf.Operation; None if unknown.
          where: "file:line" of the user's code; "" if unknown.
        """
        if self._needs_check(node, op):
            return self._replace(_Nodes(node), node, op, where)
        self._call_rewritten(node)
        return [node]

    def _needs_check(self, node, op):
        if node.op not in RULES or not kernels.has_cpu_kernel(node):
            return False
        return op is None or not RULES[node.op].is_safe(op)

    def _call_rewritten(self, node):
        """Lets a NodeDef call the functions that replace its functions; returns True if it does."""
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

    def _replace(self, nodes, node, op, where):
        """Returns the NodeDefs of the conditional; the last has the name of `node`."""
        rule = RULES[node.op]
        text = f"{node.op} at {where or 'an unknown line'} {rule.message}"
        types, results = kernels.input_types(node), kernels.output_types(node)
        values = [name for name in node.input if name[0] != "^"]
        controls = [name for name in node.input if name[0] == "^"]
        is_invalid = nodes.add_mask(_mask(node, op), values, controls)
        switches = [
            nodes.add("Switch", [value, is_invalid], T=dtype) for value, dtype in zip(values, types)
        ]
        valid = nodes.add_original([nodes.output(switch, 0) for switch in switches])
        function = _function_for_invalid(node)
        function.add_to_graph(self._graph)
        text = nodes.add_constant(text, tf.string, nodes.control(is_invalid))
        call = nodes.add(
            "StatefulPartitionedCall",
            [nodes.output(text, 0), *(nodes.output(switch, 1) for switch in switches)],
            Tin=[tf.string, *types],
            Tout=results or [tf.int32],
            f=function.name.decode(),
        )
        if not results:  # the Merge waits for the operation
            results, valid = [tf.int32], nodes.add_constant(0, tf.int32, nodes.control(valid))
        merges = [[nodes.output(valid, i), nodes.output(call, i)] for i in range(len(results))]
        if len(merges) == 1:
            nodes.add("Merge", merges[0], node.name, T=results[0], N=2)
        else:
            merges = [
                nodes.output(nodes.add("Merge", inputs, T=dtype, N=2), 0)
                for inputs, dtype in zip(merges, results)
            ]
            nodes.add("IdentityN", merges, node.name, T=results)
        return nodes.added

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
        renamed, new_nodes = {}, []
        changed = self._order_variables(name, definition)
        for node in definition.node_def:
            op = self._library.operation(name, node.name)
            if not self._needs_check(node, op):
                changed = self._call_rewritten(node) or changed
                new_nodes.append(node)
                continue
            changed = True
            where = findings.user_line(op) if op is not None else ""
            new_nodes += self._replace(_Nodes(node, in_function=True), node, op, where)
            names = kernels.output_names(node, op_def_registry.get(node.op))
            for i, output in enumerate(names):
                renamed[f"{node.name}:{output}"] = f"{node.name}:output:{i}"
        if not changed:
            return name
        new_nodes = [_copy(node) for node in new_nodes]
        del definition.node_def[:]
        definition.node_def.extend(new_nodes)
        for node in definition.node_def:
            inputs = [renamed.get(tensor, tensor) for tensor in node.input]
            del node.input[:]
            node.input.extend(inputs)
        for result, tensor in list(definition.ret.items()):
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


class _Nodes:
    """The nodes that replace one.

    Attributes:
      added: NodeDefs.
    """

    def __init__(self, original, in_function=False):
        """Starts an empty list.

        Args:
          original: the NodeDef to replace.
          in_function: True if nodes name their inputs as in a FunctionDef.
        """
        self._original = original
        self._in_function = in_function
        self.added = []

    def add(self, kind, inputs, name="", **attributes):
        """Adds a NodeDef of these inputs, names or nodes of one output; returns it."""
        node = node_def_pb2.NodeDef(op=kind, device=self._original.device)
        node.name = name or self._name(f"{kind}_{len(self.added)}")
        for value in inputs:
            node.input.append(value if isinstance(value, str) else self.output(value, 0))
        for key, value in attributes.items():
            if isinstance(value, list):
                types = [tf.as_dtype(dtype).as_datatype_enum for dtype in value]
                node.attr[key].list.type.extend(types)
            elif key == "f":
                node.attr[key].func.name = value
            elif key == "N":
                node.attr[key].i = value
            else:
                node.attr[key].type = tf.as_dtype(value).as_datatype_enum
        self.added.append(node)
        return node

    def add_constant(self, value, dtype, control):
        """Adds a constant after a control input; returns it."""
        node = self.add("Const", [control], dtype=dtype)
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype))
        return node

    def add_original(self, inputs):
        """Adds a copy of the original with other inputs; returns it."""
        node = self.add(self._original.op, inputs)
        for name, value in self._original.attr.items():
            node.attr[name].CopyFrom(value)
        return node

    def add_mask(self, mask, inputs, controls):
        """Adds the nodes of `_mask`; returns the last.

        Args:
          mask: NodeDefs; the input "input_i" stands for input i.
          inputs: names of the inputs of the original.
          controls: its control inputs.
        """
        names = {f"input_{i}": name for i, name in enumerate(inputs)}
        # Without an input, a constant would be outside of a loop.
        source = inputs[0].split(":")[0]
        is_argument = self._in_function and ":" not in inputs[0]
        within = [] if is_argument else [f"^{source}"]
        by_name = {}
        for original in mask:
            node = _copy(original)
            node.name, node.device = self._name(original.name), self._original.device
            del node.input[:]
            for value in original.input:
                name, _, index = value.partition(":")
                node.input.append(names.get(name) or self.output(by_name[name], int(index or 0)))
            if not node.input:
                node.input.extend(within)
            by_name[original.name] = node
            self.added.append(node)
        node.input.extend(controls)
        return node

    def control(self, node):
        """Returns the control input that waits for a node."""
        return f"^{node.name}"

    def output(self, node, index):
        """Returns the name of an output of a node."""
        if self._in_function:
            names = kernels.output_names(node, op_def_registry.get(node.op))
            return f"{node.name}:{names[index]}"
        return f"{node.name}:{index}" if index else node.name

    def _name(self, name):
        return f"{self._original.name}/_on_tpu/{name}"


def _copy(node):
    copy = node_def_pb2.NodeDef()
    copy.CopyFrom(node)
    return copy


def _key(node):
    attributes = {
        name: value.SerializeToString(deterministic=True)
        for name, value in node.attr.items()
        if name[0] != "_"
    }
    return node.op, tuple(sorted(attributes.items()))


def _mask(node, op):
    """Returns NodeDefs that compute whether inputs are invalid: the last, a bool tensor `[]`."""
    types = [tf.as_dtype(dtype) for dtype in kernels.input_types(node)]
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


def _function_for_invalid(node):
    """Returns the function that prints a warning, its first input, and computes the results."""
    key = _key(node)
    if key not in _traced:
        rule = RULES[node.op]

        def run(text, *inputs):
            call = Call(node, inputs)
            warnings = [_warn(text, *rule.find(call))] if rule.message else []
            with tf.control_dependencies(warnings):
                return _outputs(rule.repair(call) if rule.repair else call.compile())

        types = map(tf.as_dtype, [tf.string, *kernels.input_types(node)])
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
