"""Gives operations the results of XLA for the values of `invalid_values`, with one warning.

An operation with a `Rule` moves into a conditional of version 1: it runs the kernel for a CPU, or,
if the inputs are invalid, calls a function that prints a warning and runs the operation as XLA
compiles it. The conditional consists of nodes, because a call in each step takes several times as
long. Compiled functions are left as they are.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.core.framework import (
    attr_value_pb2,
    function_pb2,
    graph_pb2,
    node_def_pb2,
)
from tensorflow.python.framework import op_def_registry, ops

from tpu import findings
from tpu.emulator import functions, kernels, variable_order, xla_calls
from tpu.emulator.invalid_values import RULES
from tpu.graph import nodes as node_defs
from tpu.graph.nodes import control_inputs, copy_of, data_inputs, op_name, set_inputs
from tpu.graph.op_types import READS
from tpu.graph.walks import kind_of


class Rewriter:
    """Rewrites the nodes and functions of a graph, which gets the new functions."""

    def __init__(self, graph, library: functions.Library):
        self._graph = graph
        self._library = library
        self._new_names = {}

    def rewrite(self, node, op, where: str) -> list:
        """Returns the NodeDefs that replace a NodeDef of a graph: itself, if it needs no other.

        It may change. `op` is its tf.Operation, None if unknown; `where` is "file:line" or "".
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
            for reference in node_defs.references(node):
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
        types, results = node_defs.input_types(node), node_defs.output_types(node)
        values, controls = data_inputs(node), control_inputs(node)
        is_invalid = nodes.add_mask(xla_calls.mask(node, op), values, controls)
        switches = [
            nodes.add("Switch", [value, is_invalid], T=dtype) for value, dtype in zip(values, types)
        ]
        valid = nodes.add_original([nodes.output(switch, 0) for switch in switches])
        function = xla_calls.function_for_invalid(node)
        function.add_to_graph(self._graph)
        self._library.add_without_state(function.name)  # but for a warning
        text = nodes.add_constant(text, tf.string, f"^{is_invalid.name}")
        call = nodes.add(
            "StatefulPartitionedCall",
            [nodes.output(text, 0), *(nodes.output(switch, 1) for switch in switches)],
            Tin=[tf.string, *types],
            Tout=results or [tf.int32],
            f=attr_value_pb2.NameAttrList(name=function.name),
        )
        if node.op in READS:
            read = [i + 1 for i, dtype in enumerate(types) if dtype == tf.resource]
            call.attr["_read_only_resource_inputs"].list.i.extend(read)
        if not results:  # the Merge waits for the operation
            results, valid = [tf.int32], nodes.add_constant(0, tf.int32, f"^{valid.name}")
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
            names = node_defs.output_names(node, op_def_registry.get(node.op))
            for i, output in enumerate(names):
                renamed[f"{node.name}:{output}"] = f"{node.name}:output:{i}"
        if not changed:
            return name
        new_nodes = [copy_of(node) for node in new_nodes]
        del definition.node_def[:]
        definition.node_def.extend(new_nodes)
        for node in definition.node_def:
            set_inputs(node, [renamed.get(tensor, tensor) for tensor in node.input])
        for result, tensor in list(definition.ret.items()):
            definition.ret[result] = renamed.get(tensor, tensor)
        definition.signature.name = f"{name}_on_tpu_{ops.uid()}"
        definition.signature.is_stateful = True
        self._library.add(definition, name)
        self._add_to_graph(definition)
        return definition.signature.name

    def _add_to_graph(self, definition):
        """Adds a function to the graph, where functions that call it are copied."""
        added = graph_pb2.GraphDef()
        added.versions.producer = self._graph.graph_def_versions.producer
        added.library.function.add().CopyFrom(definition)
        with self._graph.as_default():
            tf.import_graph_def(added, name="")

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
        """`in_function` is True if nodes name their inputs as in a FunctionDef."""
        self._original = original
        self._in_function = in_function
        self.added = []

    def add(self, kind, inputs, name="", **attributes):
        """Adds a NodeDef of these inputs, names or nodes of one output; returns it."""
        node = node_def_pb2.NodeDef(device=self._original.device)
        node.name = name or self._name(f"{kind}_{len(self.added)}")
        inputs = [v if isinstance(v, str) else self.output(v, 0) for v in inputs]
        node_defs.replace(node, kind, inputs, **attributes)
        self.added.append(node)
        return node

    def add_constant(self, value, dtype, control):
        """Adds a constant after a control input; returns it."""
        value = tf.make_tensor_proto(value, dtype)
        return self.add("Const", [control], dtype=dtype, value=value)

    def add_original(self, inputs):
        """Adds a copy of the original with other inputs; returns it."""
        node = self.add(self._original.op, inputs)
        for name, value in self._original.attr.items():
            node.attr[name].CopyFrom(value)
        return node

    def add_mask(self, mask, inputs, controls):
        """Adds the NodeDefs of a mask, whose "input_i" is input i; returns the last."""
        names = {f"input_{i}": name for i, name in enumerate(inputs)}
        # Without an input, a constant would be outside of a loop.
        source = op_name(inputs[0])
        is_argument = self._in_function and ":" not in inputs[0]
        within = [] if is_argument else [f"^{source}"]
        by_name = {}
        for original in mask:
            node = copy_of(original)
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

    def output(self, node, index):
        """Returns the name of an output of a node."""
        if self._in_function:
            names = node_defs.output_names(node, op_def_registry.get(node.op))
            return f"{node.name}:{names[index]}"
        return f"{node.name}:{index}" if index else node.name

    def _name(self, name):
        return f"{self._original.name}/_on_tpu/{name}"
