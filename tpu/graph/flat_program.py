"""The program of one core without functions: what rules and sizes walk over.

Calls are replaced by the operations of the called function, loops and conditionals of version 2 by
the nodes of version 1 (Enter, Merge, Switch, NextIteration, Exit): see `flattener`. A `Node` has
the attributes of a `tf.Operation` that the check uses, a `Value` those of a `tf.Tensor`.
"""

from __future__ import annotations

import functools

from tensorflow.core.framework import node_def_pb2
from tensorflow.python.framework import op_def_registry

from tpu.findings import user_line
from tpu.graph import gradients
from tpu.graph.replicated_graph import ReplicatedGraph
from tpu.graph.variables import variable_name


class Value:
    """An output of a `Node`: see `tf.Tensor`."""

    __slots__ = ("_consumers", "dtype", "op", "shape", "value_index")

    def __init__(self, op, value_index, dtype, shape):
        self.op, self.value_index, self.dtype, self.shape = op, value_index, dtype, shape
        self._consumers = []

    @property
    def name(self) -> str:
        """Name of the operation and index of the output."""
        return f"{self.op.name}:{self.value_index}"

    def consumers(self) -> list[Node]:
        """Returns the nodes that have it as an input."""
        return self._consumers


class Node:
    """An operation of the step: see `tf.Operation`.

    Attributes:
      source: the operation of a graph or function that it stands for, or belongs to.
      caller: the node of the call whose function contains it; None outside of functions.
      is_copy: False if it is only a part of a call, loop or conditional.
    """

    def __init__(self, name, kind, source, caller, number, is_copy=True, attributes=()):
        self.name, self.type, self.source, self.caller = name, kind, source, caller
        self.is_copy, self._attributes, self._id = is_copy, dict(attributes), number
        self.inputs, self.control_inputs, self.outputs = [], [], []

    def __repr__(self):
        return f"<Node {self.type} '{self.name}'>"

    @property
    def graph(self):
        """The graph or function of `source`."""
        return self.source.graph

    @property
    def traceback(self):
        """The stack in which `source` was created."""
        return self.source.traceback

    @property
    def _original_op(self):
        return getattr(self.source, "_original_op", None)

    @functools.cached_property
    def node_def(self):
        """The NodeDef; without attributes for a part."""
        return self.source.node_def if self.is_copy else node_def_pb2.NodeDef(op=self.type)

    @functools.cached_property
    def op_def(self):
        """The OpDef of the type."""
        return op_def_registry.get(self.type) or self.source.op_def

    @functools.cached_property
    def is_gradient(self) -> bool:
        """True if it was built to compute a gradient."""
        return gradients.is_gradient(self.source)

    def get_attr(self, name):
        """Returns an attribute; raises ValueError if it has none of this name."""
        if self.is_copy:
            return self.source.get_attr(name)
        if name not in self._attributes:
            raise ValueError(f"'{self.name}' has no attribute '{name}'")
        return self._attributes[name]


class FlatProgram(ReplicatedGraph):
    """A `ReplicatedGraph` whose operations are `Node`s, without functions."""

    def __init__(self, program: ReplicatedGraph, operations: dict[str, Node]):
        self.operations = operations
        self.external_tensors = program.external_tensors
        self.external_controls = program.external_controls
        self.replicated_inputs = program.replicated_inputs
        self.results = program.results

    @functools.cached_property
    def pushes(self) -> dict[str, list[Node]]:
        """`{name of a stack: the operations that push a value}`, as of the gradient of a loop."""
        found = {}
        for op in self.operations.values():
            if op.type == "StackPushV2":
                found.setdefault(variable_name(op), []).append(op)
        return found


def place_of(op) -> str:
    """Returns "file:line" of the user's code of an operation or node, or of the call around it."""
    place = user_line(op)
    while not place and getattr(op, "caller", None) is not None:
        op = op.caller
        place = user_line(op)
    return place
