"""Copies the program of a TPU core for each emulated core, with CPU kernels.

The nodes of a `CoreProgram` are copied once per core, those that all cores share only once, and
`core_builder` rewrites operations that only a TPU has. Loops run one iteration at a time. Accesses
to a variable are in a fixed order: see `variable_order`.

If one core fails, the session cancels the queue operations of the others, so all cores end.
Variables: core 0 uses the variables of the graph. Where their values differ, the other cores use
copies that each session.run creates again. The TPU runtime, too, writes back only the variables of
core 0. Other resources, such as tables and summary writers, are shared by all cores.
"""

from __future__ import annotations

from unittest import mock

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import importer, ops
from tensorflow.python.ops import gen_resource_variable_ops

from tpu import findings
from tpu.emulator import (
    control_flow,
    core_builder,
    embedding_ops,
    host_io,
    variable_order,
    xla_calls,
)
from tpu.emulator.core_program import CoreProgram
from tpu.graph import nodes as node_defs
from tpu.graph import tpu_kernels, variables
from tpu.graph.nodes import control_inputs, op_name
from tpu.graph.placement import Placement
from tpu.graph.replicated_graph import ReplicatedGraph

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
    replicated = ReplicatedGraph(
        [op for op in graph.get_operations() if op._id >= operations[0]._id]
    )
    program = CoreProgram(graph, replicated, num_cores)
    on_host = graph.device(core_builder.DEVICE)
    with graph.control_dependencies(None), graph.name_scope(None), on_host:
        results = _Copies(graph, program, replicated, num_cores).add()
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


class _Copies:
    """The programs of all cores in one GraphDef: the nodes of core i are in the scope core_i.

    Those that all cores share are in the scope core_0.
    """

    def __init__(self, graph, program: CoreProgram, replicated: ReplicatedGraph, num_cores: int):
        self._program, self._replicated, self._num_cores = program, replicated, num_cores
        self._shared = program.sharing.shared
        self._rewritten = {
            name for name, node in program.nodes.items() if program.library.differs(node)
        }
        self._graph_def = graph_pb2.GraphDef()
        self._graph_def.versions.producer = graph.graph_def_versions.producer
        self._sources = {}  # {name of an input of the GraphDef: tensor}
        self._values = {}  # {alias of a variable of which each core has a copy: its value}

    def add(self) -> list[list[tf.Tensor]]:
        """Adds them to the default graph; returns the results of each core."""
        for alias, tensor in self._program.inputs.items():
            if alias not in self._shared and tensor.op.type == "VarHandleOp":
                dtype = tensor.op.get_attr("dtype")
                self._values[alias] = gen_resource_variable_ops.read_variable_op(tensor, dtype)
        before = [*self._values.values(), *self._replicated.external_controls]
        self._sources["started:0"] = _after(before, tf.constant(0))
        for core in range(self._num_cores):
            self._add_core(core)
        cores, results = range(self._num_cores), self._replicated.results
        names = [self._final_name(name, core) for core in cores for name in results]
        # Objects of Python for these operations take most of the time, and nothing reads them.
        with mock.patch.object(importer, "_ProcessNewOps"):
            found = tf.import_graph_def(self._graph_def, self._sources, names, name="cores")
        return [found[core * len(results) :][: len(results)] for core in cores]

    def _add_core(self, core):
        program = self._program
        builder = core_builder.CoreBuilder(
            core,
            self._num_cores,
            program.library,
            program.nodes,
            user_line=program.user_line,
            outside=program.outside,
            sharing=program.sharing,
        )
        for name, node in program.nodes.items():
            is_shared = name in self._shared
            if is_shared and core:
                continue
            node = self._after_all_cores(node) if is_shared else node
            if name in self._rewritten:
                builder.add_copy(node)
            else:
                builder.graph_def.node.add().CopyFrom(node)
        self._add_inputs(builder)
        for node in builder.graph_def.node:
            node.name = self._final_name(node.name, core)
            node_defs.set_inputs(node, [self._final_name(name, core) for name in node.input])
        self._graph_def.MergeFrom(builder.graph_def)

    def _after_all_cores(self, node):
        """Returns the NodeDef of a shared node, which waits for its control inputs on all cores."""
        separate = [name for name in control_inputs(node) if name[1:] not in self._shared]
        if not separate:
            return node
        node = node_defs.copy_of(node)
        for name in separate:
            node.input.remove(name)
            node.input.extend(
                f"^{core_builder.on_core(core, name[1:])}" for core in range(self._num_cores)
            )
        return node

    def _add_inputs(self, builder):
        """Adds a node for each input from outside.

        Cores other than 0 have copies of the variables that differ, assigned before the start.
        """
        core, assigned, prefix = builder.core, [], self._program.prefix
        for i, (alias, tensor) in enumerate(self._program.inputs.items()):
            if core and alias in self._shared:
                continue
            values = self._replicated.replicated_inputs.get(tensor.name)
            value, is_copied = values[core] if values else tensor, core and alias in self._values
            name = f"input_{core}_{i}:0"
            self._sources[name] = self._values[alias] if is_copied else value
            source = core_builder.outside(name)
            if is_copied:
                copied = builder.add(f"{prefix}/copy_{i}", "VarHandleOp", [])
                handle = builder.graph_def.node[-1]
                for attribute in ("dtype", "shape"):
                    handle.attr[attribute].CopyFrom(tensor.op.node_def.attr[attribute])
                # Two handles of a variable have one copy. No variable of the program has a ":".
                container, variable = variables.name_of(tensor.op)
                handle.attr["shared_name"].s = f"core_{core}:{container}:{variable}".encode()
                dtype = tf.as_dtype(handle.attr["dtype"].type)
                assign = f"{prefix}/assign_{i}"
                builder.add(assign, "AssignVariableOp", [copied, source], dtype=dtype)
                assigned.append(f"^{assign}")
                source = copied
            builder.add(alias, "Identity", [source, f"^{prefix}/start"], T=tensor.dtype)
        start = [core_builder.outside("started:0"), *assigned]
        builder.add(f"{prefix}/start", "Identity", start, T=tf.int32)

    def _final_name(self, name, core):
        """Returns the name of a node or input of a core in the GraphDef of all cores."""
        control, name = name[: name[0] == "^"], name.removeprefix("^")
        scope, name = core_builder.split_scope(name)
        if scope == core_builder.OUTSIDE:
            return f"{control}{name}"
        core = core if scope is None else scope
        return f"{control}core_{0 if op_name(name) in self._shared else core}/{name}"
