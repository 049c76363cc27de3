"""Copies of library functions for one core: tf.function, and loops and conditionals of version 2.

A function is copied for each call, so that the queues of its collectives belong to that call.
"""

from __future__ import annotations

import functools

import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.python.framework import function_def_to_graph, op_def_registry

from tpu import findings
from tpu.emulator import agreement, collectives, kernels
from tpu.graph import nodes as node_defs
from tpu.graph import op_types
from tpu.graph.nodes import op_name

# Calls of functions whose copies have state: the queues of collectives, warnings.
STATEFUL = {
    "PartitionedCall": "StatefulPartitionedCall",
    "StatelessCase": "Case",
    "StatelessIf": "If",
    "StatelessWhile": "While",
}
SUMS = ("BiasAddGrad", "Mean", "Sum")
# Stateful operations that only read or write variables, by their types or how these begin.
_ACCESSES = (
    *(*op_types.READS, "VarIsInitializedOp", "VariableShape"),
    *("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"),
)
_UPDATES = ("ResourceApply", "ResourceScatter", "ResourceSparseApply")
# Operations of a TPU that `core_builder` rewrites.
TPU_OPERATIONS = (
    *("InfeedDequeueTuple", "OutfeedEnqueueTuple", "XlaReplicaId", "XlaSharding"),
    *collectives.KINDS,
    *("RecvTPUEmbeddingActivations", "SendTPUEmbeddingGradients", "TPUEmbeddingActivations"),
)


class Library:
    """The functions of a graph, and which of its nodes need a separate copy on each core."""

    def __init__(self, graph, num_cores):
        self._graph = graph
        self._num_cores = num_cores
        self._needs_copy, self._has_state = {}, {}
        self._definitions = {}
        self._originals = {}
        self._collectives = {}
        self._num_copies = 0

    def find(self, name: str):
        """Returns the FunctionDef of a name, or None."""
        if name not in self._definitions:
            self._definitions[name] = node_defs.definition(self._graph, name)
        return self._definitions[name]

    def new_name(self, name: str, core: int) -> str:
        """Returns a new name for a copy of a function."""
        self._num_copies += 1
        return f"{name}_core_{core}_{self._num_copies}"

    def add_copy(self, name: str, original):
        """Remembers the signature of a copy."""
        self._definitions[name] = original
        self._needs_copy[name] = False

    def add(self, definition, original: str):
        """Adds a function that replaces the function of the name `original`."""
        self._definitions[definition.signature.name] = definition
        self._originals[definition.signature.name] = original

    def body(self, name: str):
        """Returns the graph of a function that Python traced, or None."""
        return getattr(self._graph._get_function(self._originals.get(name, name)), "graph", None)

    def operation(self, name: str, node: str):
        """Returns the tf.Operation of a node of a function, or None."""
        try:
            return self.body(name).get_operation_by_name(node)
        except (AttributeError, KeyError, ValueError):
            return None

    def user_line(self, name: str, node: str) -> str:
        """Returns the "file:line" of user code of a node of a function; "" if unknown."""
        op = self.operation(name, node)
        return "" if op is None else findings.user_line(op)

    def called(self, node) -> list[str]:
        """Returns the names of the functions that a NodeDef calls."""
        return node_defs.called(node, self.find)

    def collectives(self, node, op=None) -> list[tuple]:
        """Finds the collectives that a NodeDef is, or that functions that it calls contain.

        Returns:
          [(operation type, file:line, groups of cores)]; None as groups stands for all cores.
        """
        if node.op in collectives.KINDS:
            groups = collectives.static_groups(op) if op is not None else None
            return [(node.op, findings.user_line(op) if op is not None else "", groups)]
        return [item for name in self.called(node) for item in self._collectives_in(name)]

    def _collectives_in(self, name):
        if name not in self._collectives:
            self._collectives[name] = []  # in case it calls itself
            definition = self.find(name)
            for node in definition.node_def if definition is not None else ():
                found = self.collectives(node, self.operation(name, node.name))
                self._collectives[name].extend(found)
        return self._collectives[name]

    def stays_compiled(self, name: str) -> bool:
        """True if XLA compiles a function, and what it calls, also in the program of a core."""
        return self._is_compiled(self.find(name)) and not self.needs_copy(name)

    def _is_compiled(self, definition):
        return "_XlaMustCompile" in definition.attr and definition.attr["_XlaMustCompile"].b

    def differs(self, node) -> bool:
        """True if the copies of a NodeDef differ, or only a TPU has a kernel for it."""
        if node.op in SUMS:
            return node.attr["T"].type == tf.bfloat16
        if "frame_name" in node.attr or node.op in TPU_OPERATIONS:
            return True
        if self._num_cores > 1 and has_seed(node):
            return True
        called = self.called(node)
        if called:
            return any(self.needs_copy(name) for name in called)
        return not kernels.has_cpu_kernel(node)

    def has_state(self, node) -> bool:
        """True if a NodeDef, or a function that it calls, has a state other than variables."""
        called = self.called(node)
        if called:
            return any(self._function_has_state(name) for name in called)
        if node.op in ("XlaSharding", *_ACCESSES) or node.op.startswith(_UPDATES):
            return False
        return node.op in TPU_OPERATIONS or op_def_registry.get(node.op).is_stateful

    def add_without_state(self, name: str):
        """Declares that a function gives the same results for the same inputs."""
        self._has_state[name] = False

    def _function_has_state(self, name):
        if name not in self._has_state:
            self._has_state[name] = False  # in case it calls itself
            definition = self.find(name)
            self._has_state[name] = definition is None or any(
                self.has_state(node) for node in definition.node_def
            )
        return self._has_state[name]

    def needs_copy(self, name: str) -> bool:
        """True if a function needs a copy for each core."""
        if name not in self._needs_copy:
            self._needs_copy[name] = False  # in case it calls itself
            definition = self.find(name)
            if definition is not None:
                self._needs_copy[name] = self._any_differs(definition)
        return self._needs_copy[name]

    def _any_differs(self, definition):
        compiled = self._is_compiled(definition)
        for node in definition.node_def:
            if self.differs(node):
                only_kernel = compiled and not (node.op in TPU_OPERATIONS or has_seed(node))
                if not only_kernel or self.called(node):
                    return True
        return False


def has_seed(node) -> bool:
    """True if a NodeDef draws random numbers from a seed."""
    return "seed2" in node.attr and bool(node.attr["seed"].i or node.attr["seed2"].i)


def call_copies(builder, node):
    """Lets a call node of a core call copies of its functions, where they differ."""
    library = builder.library
    if "parallel_iterations" in node.attr:
        node.attr["parallel_iterations"].i = 1  # keeps the sums of two iterations apart
    if not any(library.needs_copy(name) for name in library.called(node)):
        return
    agreement.before_branch(builder, node)
    has_agreement = node.op in node_defs.LOOPS and bool(library.collectives(node))
    original = node_defs.copy_of(node)
    node.op = STATEFUL.get(node.op, node.op)
    node.attr.pop("_XlaMustCompile", None)
    path = f"{builder.path}{node.name}:"  # no node has a ":" in its name
    if library.find(node.op) is not None:
        node.op = _copy(builder, original, node.op, path)
    condition = node.attr["cond"].func.name if has_agreement else ""
    for i, function in enumerate(node_defs.references(node)):
        is_condition = function.name == condition
        if is_condition or library.needs_copy(function.name):
            function.name = _copy(builder, original, function.name, f"{path}{i}:", is_condition)


def _copy(builder, call, name, path, is_loop_condition=False):
    """Adds a copy of a function that `call` calls to the library of a core; returns its name."""
    definition = builder.library.find(name)
    body, flat = function_def_to_graph.function_def_to_graph_def(definition)
    arguments = {argument.name for argument in definition.signature.input_arg}
    nodes = {node.name: node for node in body.node}
    # The first input of a conditional is its predicate.
    passed = list(call.input)[1 if call.op in node_defs.CONDITIONALS else 0 :]
    values = dict(zip((a.name for a in definition.signature.input_arg), passed))

    changing = _changing_arguments(builder.library, call, definition)

    def find_argument(argument):
        if argument in changing:
            raise NotImplementedError(
                f"the emulator needs a constant instead of '{argument}', which the loop "
                f"'{call.name}' changes"
            )
        return builder.constant(values[argument])

    core, num_cores, library = builder.core, builder.num_cores, builder.library
    line = functools.partial(library.user_line, name)
    inner = type(builder)(core, num_cores, library, nodes, path, find_argument, line)
    for node in body.node:
        if node.name not in arguments:
            inner.add_copy(node)
    if is_loop_condition:
        (result,) = definition.ret.values()
        flat[result] = agreement.on_loop_condition(inner, call, flat[result])
    builder.graph_def.library.MergeFrom(inner.graph_def.library)
    new = _to_function(definition, inner.graph_def, arguments, flat, builder.library)
    new.signature.name = builder.library.new_name(name, builder.core)
    builder.graph_def.library.function.add().CopyFrom(new)
    builder.library.add_copy(new.signature.name, definition)
    return new.signature.name


def _changing_arguments(library, call, definition):
    """Returns the names of the arguments of a function that differ between its calls by a loop."""
    if call.op not in node_defs.LOOPS:
        return ()
    body = library.find(call.attr["body"].func.name)
    sources = {node.name: node for node in body.node_def}

    def source(tensor):
        node = sources.get(op_name(tensor))
        while node is not None and node.op == "Identity":
            tensor = node.input[0]
            node = sources.get(op_name(tensor))
        return tensor

    kept = [
        source(body.ret[result.name]) == argument.name
        for argument, result in zip(body.signature.input_arg, body.signature.output_arg)
    ]
    arguments = [argument.name for argument in definition.signature.input_arg]
    return {name for name, is_kept in zip(arguments, kept) if not is_kept}


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
        for i, name in enumerate(node_defs.output_names(node, op_def)):
            nested[f"{node.name}:{i}"] = f"{node.name}:{name}"

    def rename(name):
        if name[0] == "^":
            return name
        return nested[name if ":" in name else f"{name}:0"]

    for node in body.node:
        node_defs.set_inputs(node, [rename(name) for name in node.input])
        new.node_def.add().CopyFrom(node)
    for name, value in definition.ret.items():
        new.ret[name] = rename(flat[value])
    return new
