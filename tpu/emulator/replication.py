"""Copies the program of a TPU core for each emulated core, with CPU kernels.

The `ReplicatedGraph` is copied once per core, and `core_builder` rewrites operations that only a
TPU has. Loops run one iteration at a time. Accesses to a variable are in a fixed order: see
`variable_order`.

If one core fails, the session cancels the queue operations of the others, so all cores end.
Variables: core 0 uses the variables of the graph, the other cores use copies that each session.run
creates again. The TPU runtime, too, writes back only the variables of core 0. Other resources, such
as tables and summary writers, are shared by all cores.
"""

from __future__ import annotations

from unittest import mock

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.python.framework import importer, ops
from tensorflow.python.ops import gen_resource_variable_ops

from tpu import findings
from tpu.emulator import (
    agreement,
    control_flow,
    core_builder,
    embedding_ops,
    functions,
    host_io,
    kernels,
    variable_order,
    xla_calls,
    xla_values,
)
from tpu.graph import nodes as node_defs
from tpu.graph import tpu_kernels, variables, walks
from tpu.graph.placement import Placement
from tpu.graph.replicated_graph import ReplicatedGraph

# Attributes of operations that a CPU has no use for.
_ATTRIBUTES = ("_XlaSharding", "_xla_outside_compilation")

waiting_threads = 0  # see `emulator.Cores`


def replacements() -> list:
    """Returns the functions to patch for emulated cores: see `emulator.Cores`."""
    xla_calls.reset_warnings()
    modules = (control_flow, host_io, embedding_ops)
    replaced = [replacement for module in modules for replacement in module.replacements()]
    find, as_graph_def = ops.Graph._get_operation_by_tf_operation, ops.Graph._as_graph_def
    return [
        *replaced,
        (ops.Graph, find.__name__, _find_or_create(find)),
        (ops.Graph, as_graph_def.__name__, _without_shapes(as_graph_def)),
    ]


def _find_or_create(find):
    """Returns `find` for a graph in which not all operations have an object of Python."""

    def find_or_create(graph, c_operation):
        try:
            return find(graph, c_operation)
        except KeyError:
            return graph._create_op_from_tf_operation(c_operation, compute_device=False)

    return find_or_create


def _without_shapes(as_graph_def):
    """Returns `as_graph_def`, which reads shapes from objects of Python, for such a graph."""

    def without_shapes(graph, from_version=None, add_shapes=False, **options):
        add_shapes = add_shapes and not graph.new_operations()
        return as_graph_def(graph, from_version, add_shapes, **options)

    return without_shapes


def run(build, num_cores):
    """Adds a copy of the replicated graph for each core: see `emulator.Cores`."""
    graph, operations = tf.compat.v1.get_default_graph(), build()
    original = ReplicatedGraph(operations)
    _warn_of_kernels(original)
    live = [op for name, op in original.operations.items() if name in original.live]
    variable_order.add_edges(live, sequential_loops=True)
    program = ReplicatedGraph([op for op in graph.get_operations() if op._id >= operations[0]._id])
    template = _Template(graph, program, num_cores)
    on_host = graph.device(core_builder.DEVICE)
    with graph.control_dependencies(None), graph.name_scope(None), on_host:
        values = _variable_values(program)
        started = _after([*values.values(), *program.external_controls], tf.constant(0))
        results = [template.copy(core, values, started) for core in range(num_cores)]
        done = [tensor for result in results for tensor in result]
        return [[_after(done, tensor) for tensor in result] for result in results]


def _warn_of_kernels(program):
    """Prints what runs on an emulated core, and not on a TPU."""
    for op in Placement(program).on_core.values():
        code, message = tpu_kernels.find_fault(op) or ("", "")
        place = findings.user_line(op)
        if code:  # one warning for an operation and its gradient
            shown = f"a TPU refuses what is emulated here: {message}{place and f' (at {place})'}"
            xla_calls.warn(f"{code} {place or message}", shown)


def _after(dependencies, tensor):
    """Returns a tensor that is available after all dependencies."""
    with tf.control_dependencies(dependencies):
        return tf.identity(tensor)


def _variable_values(program):
    """Returns `{name of a handle: value of the variable}`; other resources are shared."""
    handles = {
        name: tensor
        for name, tensor in program.external_tensors.items()
        if tensor.op.type == "VarHandleOp" and name in program.used
    }
    return {
        name: gen_resource_variable_ops.read_variable_op(handle, handle.op.get_attr("dtype"))
        for name, handle in handles.items()
    }


class _Template:
    """The nodes of the program, to copy for each core."""

    def __init__(self, graph, program, num_cores):
        self._results = program.results
        self._user_line = lambda name: findings.user_line(program.operations[name])
        self._external = {
            name: tensor
            for name, tensor in program.external_tensors.items()
            if name in program.used
        }
        # Their names in the program of a core: one per tensor, and none that the program has.
        prefix = _free_prefix("external", program.operations)
        self._aliases = {name: f"{prefix}/value_{i}" for i, name in enumerate(self._external)}
        self._prefix = prefix
        self._replicated = program.replicated_inputs
        self._num_cores = num_cores
        self._library = functions.Library(graph, num_cores)
        self._common = graph_pb2.GraphDef()  # nodes that are equal on all cores
        self._common.versions.producer = graph.graph_def_versions.producer
        self._nodes, self._different = {}, []
        rewriter = xla_values.Rewriter(graph, self._library)
        for name, op in program.operations.items():
            if name in program.live:
                self._add(op, program.operations, rewriter)
        self._common.library.function.extend(rewriter.functions)
        _refuse_without_kernel(self._different, program, self._library)
        _refuse_other_outfeeds(self._different, self._user_line)
        # Cores agree before conditionals and loops with collectives.
        live = [op for name, op in program.operations.items() if name in program.live]
        nodes = {node.name: node for node in [*self._common.node, *self._different]}
        self._different += agreement.add_nodes(live, nodes, self._library, num_cores)
        self._outside = {  # where the groups of collectives may come from
            alias: walks.root(self._external[name]).op.node_def
            for name, alias in self._aliases.items()
        }

    def _add(self, op, inside, rewriter):
        node = node_def_pb2.NodeDef()
        # Control inputs from outside are added to the inputs: see `run`.
        node_defs.copy_node(op, node, inside, core_builder.DEVICE)
        for name in _ATTRIBUTES:
            node.attr.pop(name, None)
        if "parallel_iterations" in node.attr:
            node.attr["parallel_iterations"].i = 1  # keeps sums of two iterations apart
        for i, name in enumerate(node.input):
            node.input[i] = self._aliases.get(name if ":" in name else f"{name}:0", name)
        self._nodes[node.name] = node_defs.copy_of(node)
        for new in rewriter.rewrite(node, op, findings.user_line(op)):
            if self._library.differs(new):
                self._different.append(new)
            else:
                self._common.node.add().CopyFrom(new)

    def copy(self, core, values, started):
        """Imports the program of one core into the default graph; returns its results.

        `values` is `{name of a handle: value of the variable}`; cores wait for `started`, a tensor.
        """
        builder = core_builder.CoreBuilder(
            core,
            self._num_cores,
            self._library,
            self._nodes,
            user_line=self._user_line,
            outside=self._outside,
        )
        builder.graph_def.CopyFrom(self._common)
        for node in self._different:
            builder.add_copy(node)
        inputs = self._add_inputs(builder, values)
        inputs[f"{self._prefix}/started:0"] = started
        # Objects of Python for these operations take most of the time, and nothing reads them.
        with mock.patch.object(importer, "_ProcessNewOps"):
            return tf.import_graph_def(
                builder.graph_def, inputs, self._results, name=f"core_{core}"
            )

    def _add_inputs(self, builder, values):
        """Adds a node for each external tensor; returns the input map of the import.

        Cores other than 0 have copies of the variables, which are assigned before the start.
        """
        core, inputs, assigned = builder.core, {}, []
        for i, (name, tensor) in enumerate(self._external.items()):
            source = f"{self._prefix}/{i}:0"
            inputs[source] = self._replicated.get(name, [tensor] * self._num_cores)[core]
            if core and name in values:
                inputs[source] = values[name]
                copied = builder.add(f"{self._prefix}/copy_{i}", "VarHandleOp", [])
                handle = builder.graph_def.node[-1]
                for attribute in ("dtype", "shape"):
                    handle.attr[attribute].CopyFrom(tensor.op.node_def.attr[attribute])
                # Two handles of a variable have one copy. No variable of the program has a ":".
                container, variable = variables.name_of(tensor.op)
                handle.attr["shared_name"].s = f"core_{core}:{container}:{variable}".encode()
                dtype = tf.as_dtype(handle.attr["dtype"].type)
                assign = f"{self._prefix}/assign_{i}"
                builder.add(assign, "AssignVariableOp", [copied, source], dtype=dtype)
                assigned.append(f"^{assign}")
                source = copied
            after = f"^{self._prefix}/start"
            builder.add(self._aliases[name], "Identity", [source, after], T=tensor.dtype)
        start = [f"{self._prefix}/started:0", *assigned]
        builder.add(f"{self._prefix}/start", "Identity", start, T=tf.int32)
        return inputs


def _free_prefix(prefix, names):
    """Returns `prefix`, longer if one of the names is in this scope."""
    while any(name == prefix or name.startswith(f"{prefix}/") for name in names):
        prefix += "_"
    return prefix


def _refuse_without_kernel(nodes, program, library):
    """Raises NotImplementedError if nodes or their functions have no kernel and no rewrite."""
    for node in nodes:
        op = program.operations[node.name]
        for kind, where in _unsupported(node, findings.user_line(op), library, set()):
            name = op.name if kind == op.type else f"{op.name}, a call of a function"
            raise NotImplementedError(
                f"the emulator does not support {kind} ('{name}', at {where or 'unknown line'}): "
                "TensorFlow has no CPU kernel for it. Remove the operation, or run it on a TPU"
            )


def _refuse_other_outfeeds(nodes, user_line):
    """Raises NotImplementedError if outfeeds have different types: the host reads one queue."""
    outfeeds = [node for node in nodes if node.op == "OutfeedEnqueueTuple"]
    types = [[*node.attr["dtypes"].list.type] for node in outfeeds]
    for node, dtypes in zip(outfeeds, types):
        if dtypes != types[0]:
            names, first = (
                ", ".join(tf.as_dtype(i).name for i in item) for item in (dtypes, types[0])
            )
            raise NotImplementedError(
                f"the emulator does not support outfeeds of different types: {names} at "
                f"{user_line(node.name) or 'unknown line'}, {first} in the one before. Send all "
                "tensors in one outfeed, such as host_call"
            )


def _unsupported(node, where, library, seen):
    """Yields (operation type, file:line) for each unsupported operation of a node."""
    names = library.called(node)
    is_emulated = names or node.op in functions.TPU_OPERATIONS or kernels.has_cpu_kernel(node)
    if not is_emulated and not kernels.can_compile(node):
        yield node.op, where
    for name in names:
        definition = library.find(name)
        if name in seen or definition is None or not library.needs_copy(name):
            continue
        seen.add(name)
        for inner in definition.node_def:
            yield from _unsupported(
                inner, library.user_line(name, inner.name) or where, library, seen
            )
