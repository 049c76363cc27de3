"""Constant inputs of nodes, such as the groups of a collective."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import function_def_to_graph

from tpu.graph.nodes import CALLS, copy_of, data_inputs, make_constant, op_name, set_inputs

_ARGUMENT = "Placeholder"


class Constants:
    """Evaluates constant inputs of the nodes of a graph or function."""

    def __init__(self, nodes, library, find_argument=None):
        """`nodes` is `{name: NodeDef}`, with inputs named as in a GraphDef.

        `find_argument` is a function from the name of a Placeholder to its value, or None.
        """
        self._nodes = nodes
        self._library = library
        self._find_argument = find_argument
        self._found = {}

    def find(self, tensor_name: str):
        """Returns the value of a tensor, as an array.

        Raises:
          NotImplementedError: it is not a constant.
        """
        name = tensor_name if ":" in tensor_name else f"{tensor_name}:0"
        node = self._nodes.get(op_name(name))
        while node is not None and node.op in ("Enter", "Identity"):
            name = node.input[0]
            node = self._nodes.get(op_name(name))
        if node is not None and node.op == "Const":
            return tf.make_ndarray(node.attr["value"].tensor)
        if name not in self._found:
            is_call = node is not None and node.op in CALLS
            self._found[name] = self._find_in_call(node, name) if is_call else self._evaluate(name)
        return self._found[name]

    def _find_in_call(self, call, name):
        """Returns the value of a result of a function, such as what it keeps for its gradient."""
        definition = self._library.find(call.attr["f"].func.name)
        body, flat = function_def_to_graph.function_def_to_graph_def(definition)
        passed = dict(zip((a.name for a in definition.signature.input_arg), call.input))
        result = definition.signature.output_arg[int(name.split(":")[1])].name
        nodes = {node.name: node for node in body.node}
        inside = Constants(nodes, self._library, lambda argument: self.find(passed[argument]))
        return inside.find(flat[definition.ret[result]])

    def _evaluate(self, name):
        graph_def, seen, pending = graph_pb2.GraphDef(), set(), [op_name(name)]
        while pending:
            node_name = pending.pop()
            if node_name in seen:
                continue
            seen.add(node_name)
            node = graph_def.node.add()
            node.CopyFrom(self._constant_node(node_name))
            pending += map(op_name, node.input)
        with tf.Graph().as_default() as graph:
            (tensor,) = tf.import_graph_def(graph_def, {}, [name], name="")
            with tf.compat.v1.Session(graph=graph) as session:
                return session.run(tensor)

    def _constant_node(self, name):
        """Returns a node without control inputs, loops and arguments."""
        original = self._nodes.get(name)
        if original is None or original.op in ("Merge", "VarHandleOp"):
            raise NotImplementedError(f"the emulator needs a constant instead of '{name}'")
        node = copy_of(original)
        if node.op == _ARGUMENT:
            if self._find_argument is None:
                raise NotImplementedError(f"the emulator needs a constant instead of '{name}'")
            value = self._find_argument(name)
            make_constant(node, value, original.attr["dtype"].type)
        if node.op == "Enter":
            node.op = "Identity"
            for attribute in ("frame_name", "is_constant", "parallel_iterations"):
                node.attr.pop(attribute, None)
        set_inputs(node, data_inputs(node))
        return node
