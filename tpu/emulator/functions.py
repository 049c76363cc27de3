"""Copies of library functions for one core: tf.function, and loops and conditionals of version 2.

A function is copied for each call, so that the queues of its collectives belong to that call.
"""

from __future__ import annotations

from tensorflow.core.framework import function_pb2
from tensorflow.python.framework import function_def_to_graph, op_def_registry

from tpu import findings
from tpu.emulator import copies, kernels

# Calls of functions whose copies have state: the queues of collectives.
_STATEFUL = {
    "PartitionedCall": "StatefulPartitionedCall",
    "StatelessCase": "Case",
    "StatelessIf": "If",
    "StatelessWhile": "While",
}


class Library:
    """The functions of a graph."""

    def __init__(self, graph, num_cores):
        self._graph = graph
        self._num_cores = num_cores
        self._needs_copy = {}
        self._definitions = {}
        self._num_copies = 0

    def find(self, name: str):
        """Returns the FunctionDef of a name, or None."""
        if name not in self._definitions:
            function = self._graph._functions.get(name)
            definition = None if function is None else function.cached_definition
            self._definitions[name] = definition
        return self._definitions[name]

    def new_name(self, name: str, core: int) -> str:
        """Returns a new name for a copy of a function."""
        self._num_copies += 1
        return f"{name}_core_{core}_{self._num_copies}"

    def add_copy(self, name: str, original):
        """Remembers the signature of a copy."""
        self._definitions[name] = original
        self._needs_copy[name] = False

    def user_line(self, name: str, node: str) -> str:
        """Returns the "file:line" of user code of a node of a function; "" if unknown."""
        body = getattr(self._graph._functions.get(name), "graph", None)
        try:
            return findings.user_line(body.get_operation_by_name(node))
        except (AttributeError, KeyError, ValueError):
            return ""

    def called(self, node) -> list[str]:
        """Returns the names of the functions that a NodeDef calls."""
        names = [node.op] if self.find(node.op) is not None else []
        for value in node.attr.values():
            kind = value.WhichOneof("value")
            if kind == "func":
                names.append(value.func.name)
            elif kind == "list":
                names += [function.name for function in value.list.func]
        return [name for name in names if name]

    def needs_copy(self, name: str) -> bool:
        """True if a function needs a copy for each core."""
        if name not in self._needs_copy:
            self._needs_copy[name] = False  # in case it calls itself
            definition = self.find(name)
            if definition is not None:
                self._needs_copy[name] = self._any_differs(definition)
        return self._needs_copy[name]

    def _any_differs(self, definition):
        compiled = definition.attr["_XlaMustCompile"].b if definition.attr else False
        for node in definition.node_def:
            if copies.differs(node, self, self._num_cores):
                only_kernel = compiled and not (
                    node.op in copies.TPU_OPERATIONS or copies.has_seed(node)
                )
                if not only_kernel or self.called(node):
                    return True
        return False


def call_copies(builder, node):
    """Lets a call node of a core call copies of its functions, where they differ."""
    library = builder.library
    if "parallel_iterations" in node.attr:
        node.attr["parallel_iterations"].i = 1  # keeps the sums of two iterations apart
    if not any(library.needs_copy(name) for name in library.called(node)):
        return
    node.op = _STATEFUL.get(node.op, node.op)
    node.attr.pop("_XlaMustCompile", None)
    path = f"{builder.path}{node.name}/"
    if library.find(node.op) is not None:
        node.op = _copy(builder, node, node.op, path)
    for name, value in node.attr.items():
        kind = value.WhichOneof("value")
        attributes = [value.func] if kind == "func" else []
        attributes += value.list.func if kind == "list" else []
        for i, function in enumerate(attributes):
            if function.name and library.needs_copy(function.name):
                function.name = _copy(builder, node, function.name, f"{path}{name}_{i}/")


def _copy(builder, call, name, path):
    """Adds a copy of a function that `call` calls to the library of a core; returns its name."""
    definition = builder.library.find(name)
    body, flat = function_def_to_graph.function_def_to_graph_def(definition)
    arguments = {argument.name for argument in definition.signature.input_arg}
    nodes = {node.name: node for node in body.node}
    # The first input of a conditional is its predicate.
    passed = list(call.input)[1 if call.op in ("Case", "If") else 0 :]
    values = dict(zip((a.name for a in definition.signature.input_arg), passed))

    def find_argument(argument):
        return builder.constant(values[argument])

    inner = type(builder)(
        builder.core, builder.num_cores, builder.library, nodes, path, find_argument
    )
    for node in body.node:
        if node.name not in arguments:
            inner.add_copy(node)
    builder.graph_def.library.MergeFrom(inner.graph_def.library)
    new = _to_function(definition, inner.graph_def, arguments, flat, builder.library)
    new.signature.name = builder.library.new_name(name, builder.core)
    builder.graph_def.library.function.add().CopyFrom(new)
    builder.library.add_copy(new.signature.name, definition)
    return new.signature.name


def _to_function(definition, body, arguments, flat, library):
    """Returns a FunctionDef like `definition`, with another body."""
    new = function_pb2.FunctionDef()
    new.CopyFrom(definition)
    new.signature.is_stateful = True
    new.attr.pop("_XlaMustCompile", None)
    del new.node_def[:]
    nested = {f"{name}:0": name for name in arguments}
    for node in body.node:
        signature = library.find(node.op)
        op_def = op_def_registry.get(node.op) if signature is None else signature.signature
        for i, name in enumerate(kernels.output_names(node, op_def)):
            nested[f"{node.name}:{i}"] = f"{node.name}:{name}"

    def rename(name):
        if name[0] == "^":
            return name
        return nested[name if ":" in name else f"{name}:0"]

    for node in body.node:
        inputs = [rename(name) for name in node.input]
        del node.input[:]
        node.input.extend(inputs)
        new.node_def.add().CopyFrom(node)
    for name, value in definition.ret.items():
        new.ret[name] = rename(flat[value])
    return new
