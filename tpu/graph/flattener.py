"""Builds the flat program of a core, as TensorFlow removes functions before it runs a graph."""

from __future__ import annotations

import itertools

import tensorflow as tf

from tpu.graph import nodes
from tpu.graph.flat_program import FlatProgram, Node, Value
from tpu.graph.op_types import READS
from tpu.graph.replicated_graph import ReplicatedGraph

# Outputs of a Switch.
_FALSE, _TRUE = 0, 1


def flatten(program: ReplicatedGraph) -> FlatProgram:
    """Returns the flat program of a `ReplicatedGraph`, the same one for each call."""
    if "_flat" not in vars(program):
        program._flat = FlatProgram(program, _Flattener(program).nodes)
    return program._flat


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

        `scope` has the values of the arguments already. All wait for `pivot`, a node; outside of
        functions it is None, as `caller`, the node of the call.
        """
        for op in operations:
            called = ()
            if nodes.takes_functions(op.type):
                called = nodes.called(op.node_def, op.graph._get_function)
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
        if op.type in nodes.LOOPS:
            results, end = add.loop(*called)
        elif op.type in nodes.CONDITIONALS:
            results, end = add.conditional(called)
        elif op.type in nodes.CALLS or op.graph._is_function(op.type):
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
            graph = nodes.function_graph(self._op.graph, name)
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
        graph = nodes.function_graph(self._op.graph, name)
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
        if node.op in READS or node.name in given:
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
