"""The program of one core without functions: what rules and sizes walk over.

Calls are replaced by the operations of the called function, loops and conditionals of version 2 by
the nodes of version 1 (Enter, Merge, Switch, NextIteration, Exit), as TensorFlow does before it
runs a graph. A `Node` has the attributes of a `tf.Operation` that the check uses, a `Value` those
of a `tf.Tensor`.
"""

from __future__ import annotations

import functools
import itertools

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.framework import function_def_to_graph, op_def_registry

from tpu.check import gradients
from tpu.emulator.replicated_graph import ReplicatedGraph
from tpu.findings import user_line

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
CONDITIONALS = {
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
    "Case": ("branches",),
    "StatelessCase": ("branches",),
}
LOOPS = ("While", "StatelessWhile")
# Operations that read variables, whose shapes an imported function does not have.
_READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")
# Operations that pass a handle into functions, loops and conditionals.
_PASSING_OPS = ("Enter", "Identity", "Switch", "Merge", "NextIteration", "Exit")
# Outputs of a Switch.
_FALSE, _TRUE = 0, 1


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

    def __init__(self, program: ReplicatedGraph):
        flattener = _Flattener(program)
        self.operations = flattener.nodes
        self.external_tensors = program.external_tensors
        self.external_controls = program.external_controls
        self.replicated_inputs = program.replicated_inputs
        self.results = program.results


def flatten(program: ReplicatedGraph) -> FlatProgram:
    """Returns the flat program of a `ReplicatedGraph`, the same one for each call."""
    if "_flat" not in vars(program):
        program._flat = FlatProgram(program)
    return program._flat


def place_of(op) -> str:
    """Returns "file:line" of the user's code of an operation or node, or of the call around it."""
    place = user_line(op)
    while not place and getattr(op, "caller", None) is not None:
        op = op.caller
        place = user_line(op)
    return place


def variable_name(op: Node) -> str:
    """Returns the name of the variable (or stack) whose handle is an operation's first input."""
    return name_of_handle(op.inputs[0])


def name_of_handle(value) -> str:
    """Returns the name of the variable (or stack) of a handle that was passed on."""
    handle = value.op
    while handle.type in _PASSING_OPS:
        handle = handle.inputs[0].op
    return handle.name


@functools.cache
def takes_functions(op_type: str) -> bool:
    """Returns True for the types of operations that may call functions."""
    op_def = op_def_registry.get(op_type)
    return op_def is None or any(attr.type in ("func", "list(func)") for attr in op_def.attr)


class _Flattener:
    """Builds the nodes of a program.

    Attributes:
      nodes: `{name: Node}`.
    """

    def __init__(self, program):
        self.nodes = {}
        self._numbers = itertools.count()
        self._taken = set(program.operations)
        self._inputs = []  # (node, tensors of its graph, scope)
        self._stands_for = {}  # {value of a call: the value that it stands for}
        scope = _Scope()
        self._add(list(program.operations.values()), scope, "", None, None)
        self._link()

    def _add(self, operations, scope, prefix, caller, pivot):
        """Adds the operations of a graph or of a function.

        Args:
          operations: of one graph.
          scope: the `_Scope` of this copy; has the values of the arguments already.
          prefix: of the names.
          caller: node of the call.
          pivot: node that all wait for; None outside of functions.
        """
        for op in operations:
            called = _called_functions(op) if takes_functions(op.type) else ()
            if called:
                self._add_call(op, called, scope, prefix, caller, pivot)
                continue
            node = self._node(f"{prefix}{op.name}", op.type, op, caller)
            for tensor in op.outputs:
                shape = scope.shapes.get(tensor.name, tensor.shape)
                value = Value(node, tensor.value_index, tensor.dtype, shape)
                node.outputs.append(value)
                scope.values[tensor.name] = value
            scope.ends[op.name] = node
            self._inputs.append((node, op, scope, pivot))

    def _add_call(self, op, called, scope, prefix, caller, pivot):
        """Replaces a call, a loop or a conditional by the operations of its functions."""
        start = self._part(f"{prefix}{op.name}", "NoOp", op, caller)
        self._inputs.append((start, op, scope, pivot))
        shapes = [scope.values.get(tensor.name, tensor).shape for tensor in op.inputs]
        arguments = [Value(start, i, t.dtype, s) for i, (t, s) in enumerate(zip(op.inputs, shapes))]
        for value, tensor in zip(arguments, op.inputs):
            self._stands_for[value] = (scope, tensor)
        add = _Call(self, op, start, arguments)
        if op.type in LOOPS:
            results, end = add.loop(*called)
        elif op.type in CONDITIONALS:
            results, end = add.conditional(called)
        elif op.type in _CALLS or op.graph._is_function(op.type):
            results, end = add.call(called[0])
        else:
            results, end = add.other(called)
        for tensor, value in zip(op.outputs, results):
            scope.values[tensor.name] = value
            scope.calls[tensor.name] = end
        scope.ends[op.name] = end

    def _node(self, name, kind, source, caller, **options):
        if name in self.nodes or (caller is not None and name in self._taken):
            name = next(n for i in itertools.count(1) if (n := f"{name}_{i}") not in self.nodes)
        node = Node(name, kind, source, caller, next(self._numbers), **options)
        self.nodes[name] = node
        return node

    def _part(self, name, kind, op, caller, **options):
        return self._node(name, kind, op, caller, is_copy=False, **options)

    def _link(self):
        """Sets the inputs of the nodes, after all nodes exist."""
        for node, op, scope, pivot in self._inputs:
            tensors = list(op.inputs)
            controls = [scope.ends.get(control.name, control) for control in op.control_inputs]
            # A call whose result is used is executed whole.
            controls += [scope.calls[t.name] for t in tensors if t.name in scope.calls]
            controls += [pivot] if pivot is not None else []
            if node.is_copy:
                node.inputs = [self._resolve(scope.values.get(t.name, t)) for t in tensors]
            else:  # the start of a call waits for its arguments
                controls += [self._resolve(scope.values.get(t.name, t)).op for t in tensors]
            node.control_inputs = list(dict.fromkeys([*node.control_inputs, *controls]))
        for node in self.nodes.values():
            node.inputs = [self._resolve(value) for value in node.inputs]
            for value in node.inputs:
                if isinstance(value, Value):
                    value._consumers.append(node)

    def _resolve(self, value):
        while value in self._stands_for if isinstance(value, Value) else False:
            scope, tensor = self._stands_for[value]
            value = scope.values.get(tensor.name, tensor)
        return value


class _Scope:
    """Names of one copy of a graph or function.

    Attributes:
      values: `{name of a tensor: Value}`.
      ends: `{name of an operation: node after which it is done}`.
      calls: `{name of a tensor that a call returns: node after which the call is done}`.
      shapes: `{name of a tensor: shape}`, for the arguments of this call, if they tell more.
    """

    def __init__(self):
        self.values, self.ends, self.calls, self.shapes = {}, {}, {}, {}


class _Call:
    """Adds the operations that a call, a loop or a conditional stands for."""

    def __init__(self, flattener, op, start, arguments):
        self._flattener, self._op, self._start = flattener, op, start
        self._arguments = arguments

    def call(self, name):
        """Adds a function; returns the values of its results and the node that ends it."""
        results, ends = self._body(name, self._arguments, self._start)
        return results, self._end(ends)

    def other(self, names):
        """Adds the functions of an unknown operation, such as a reduction by a function.

        Each of their arguments depends on all inputs, and each result on all of theirs.
        """
        node = self._part(self._op.type, self._op.type, list(self._arguments), [self._start])
        node.is_copy = True
        node.outputs = [Value(node, t.value_index, t.dtype, t.shape) for t in self._op.outputs]
        for name in names:
            graph = _function_graph(self._op.graph, name)
            arguments = []
            for i, tensor in enumerate(graph.inputs):
                part = self._part(f"argument_{i}", "IdentityN", list(self._arguments))
                arguments.append(self._output(part, tensor))
            results, ends = self._body(name, arguments, self._start)
            node.inputs += results
            node.control_inputs += ends
        return node.outputs, node

    def conditional(self, names):
        """Adds the branches of an If or a Case."""
        predicate, arguments = self._arguments[0], self._arguments[1:]
        branches = []
        for i, name in enumerate(names):
            # The first branch of an If, for True, is the second output of a Switch.
            index = 1 - i if self._op.type in ("If", "StatelessIf") else i
            count = len(names)
            inputs = [
                self._switch(f"{i}/{j}", argument, predicate, count)[index]
                for j, argument in enumerate(arguments)
            ]
            alive = self._switch(f"{i}/alive", predicate, predicate, count)[index]
            pivot = self._part(f"{i}/pivot", "Identity", [alive], [self._start])
            results, ends = self._body(name, inputs, pivot)
            end = self._part(f"{i}/end", "Identity", [alive], ends)
            branches.append([*results, self._output(end, predicate)])
        merged = [
            self._output(self._part(f"merge_{i}", "Merge", list(values)), values[0])
            for i, values in enumerate(zip(*branches))
        ]
        return merged[:-1], self._end([merged[-1].op])

    def loop(self, condition, body):
        """Adds the condition and the body of a While."""
        start = self._part("start", "Const", [], [self._start])
        # One more variable, on which what a body only does depends.
        done = Value(start, 0, tf.bool, tf.TensorShape([]))
        start.outputs.append(done)
        variables = [*self._arguments, done]
        merges = []
        frame = {"frame_name": f"{self._start.name}/loop".encode()}
        for i, value in enumerate(variables):
            enter = self._part(f"enter_{i}", "Enter", [value], attributes=frame)
            merge = self._part(f"merge_{i}", "Merge", [self._output(enter, value)])
            merges.append(self._output(merge, value))
        pivot = self._part("condition", "Identity", [merges[-1]])
        (predicate,), ends = self._body(condition, merges[:-1], pivot)
        go_on = self._part("LoopCond", "LoopCond", [predicate], ends)
        go_on = self._output(go_on, done)
        switches = [self._switch(str(i), value, go_on) for i, value in enumerate(merges)]
        pivot = self._part("body", "Identity", [switches[-1][_TRUE]])
        results, ends = self._body(body, [pair[_TRUE] for pair in switches[:-1]], pivot)
        end = self._part("end", "Identity", [switches[-1][_TRUE]], ends)
        for i, value in enumerate([*results, self._output(end, done)]):
            following = self._part(f"next_{i}", "NextIteration", [value])
            merges[i].op.inputs.append(self._output(following, merges[i]))
        exits = [
            self._output(self._part(f"exit_{i}", "Exit", [pair[_FALSE]]), tensor)
            for i, (pair, tensor) in enumerate(zip(switches, [*self._op.outputs, done]))
        ]
        return exits[:-1], self._end([exits[-1].op])

    def _body(self, name, arguments, pivot):
        """Adds a copy of a function; returns its results, and the nodes that end it."""
        graph = _function_graph(self._op.graph, name)
        scope, flattener = _Scope(), self._flattener
        scope.shapes = _shapes_inside(self._op.graph, name, graph, arguments)
        for tensor, value in zip(graph.inputs, arguments):
            scope.values[tensor.name] = value
        inputs = {tensor.op.name for tensor in graph.inputs}
        for name_of_input in inputs:
            scope.ends[name_of_input] = pivot
        operations = [op for op in graph.get_operations() if op.name not in inputs]
        flattener._add(operations, scope, f"{pivot.name}/", self._start, pivot)
        results = []
        for i, tensor in enumerate(graph.outputs):
            value = Value(pivot, i, tensor.dtype, scope.shapes.get(tensor.name, tensor.shape))
            flattener._stands_for[value] = (scope, tensor)
            results.append(value)
        last = [*getattr(graph, "control_outputs", ()), *(t.op for t in graph.outputs)]
        ends = [scope.ends[op.name] for op in last if op.name in scope.ends]
        return results, [*ends, pivot]

    def _switch(self, name, value, predicate, num_branches=2):
        node = self._part(f"switch_{name}", "Switch", [value, predicate])
        return [self._output(node, value) for _ in range(num_branches)]

    def _part(self, name, kind, inputs, controls=(), **options):
        name, op, caller = f"{self._start.name}/{name}", self._op, self._start.caller
        node = self._flattener._part(name, kind, op, caller, **options)
        node.inputs, node.control_inputs = inputs, list(controls)
        return node

    def _end(self, controls):
        return self._part("end", "NoOp", [], [self._start, *controls])

    @staticmethod
    def _output(node, like):
        value = Value(node, len(node.outputs), like.dtype, like.shape)
        node.outputs.append(value)
        return value


def _called_functions(op):
    """Returns the names of the functions that an operation calls."""
    if op.graph._is_function(op.type):  # a function by its own name, as of a Defun
        return [op.type]
    names = []
    attributes = CONDITIONALS.get(op.type) or (("cond", "body") if op.type in LOOPS else None)
    for name in attributes or sorted(op.node_def.attr):
        value = op.node_def.attr[name]
        names += [called.name for called in (*value.list.func, value.func) if called.name]
    return names


def _function_graph(graph, name):
    """Returns the FuncGraph of a function that is registered in a graph."""
    function_graph = getattr(graph._get_function(name), "graph", None)
    if function_graph is not None and hasattr(function_graph, "inputs"):
        return function_graph
    with graph.as_default():
        return function_def_to_graph.function_def_to_graph(_definition(graph, name))


def _definition(graph, name):
    """Returns the FunctionDef of a function."""
    for function in graph.as_graph_def().library.function:
        if function.signature.name == name:
            return function
    raise ValueError(f"the function '{name}' is missing in the graph")


def _shapes_inside(graph, name, function_graph, arguments):
    """Returns `{name of a tensor: shape}` in a call, of a function for arguments of any shape."""
    pairs = list(zip(function_graph.inputs, arguments))
    shapes = [value.shape if value.dtype != tf.resource else None for value in arguments]
    if all(shape is None or t.shape.is_fully_defined() for (t, _), shape in zip(pairs, shapes)):
        return {}
    if not any(s is not None and s.is_fully_defined() for s in shapes):
        return {}
    graph_def = function_graph.as_graph_def()
    given = {tensor.op.name: shape for (tensor, _), shape in zip(pairs, shapes) if shape}
    for node in graph_def.node:
        operation = function_graph.get_operation_by_name(node.name)
        if node.op in _READS or node.name in given:
            shape = given.get(node.name, operation.outputs[0].shape)
            dtype = operation.outputs[0].dtype
            node.Clear()
            node.name, node.op = operation.name, "Placeholder"
            node.attr["dtype"].type = dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(shape.as_proto())
        node.attr.pop("_output_shapes", None)
    try:
        with tf.Graph().as_default() as inferred:
            tf.import_graph_def(graph_def, name="")
    except ValueError:  # the shapes do not fit; TensorFlow reports that when it runs
        return {}
    return {
        tensor.name: tensor.shape
        for op in inferred.get_operations()
        for tensor in op.outputs
        if tensor.shape.is_fully_defined()
    }
