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

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.python.ops import gen_resource_variable_ops

from tpu import findings
from tpu.emulator import core_builder, kernels, variable_order
from tpu.emulator.functions import Library, called
from tpu.emulator.replicated_graph import ReplicatedGraph, copy_node

# Attributes of operations that a CPU has no use for.
_ATTRIBUTES = ("_XlaSharding", "_xla_outside_compilation")


def run_on_cores(operations, num_cores):
    """Adds a copy of the replicated graph for each core to the default graph.

    Args:
      operations: the replicated graph with its TPUReplicatedInputs and TPUReplicatedOutputs.
      num_cores: number of copies.

    Returns:
      The results of core 0, available once all cores are done.

    Raises:
      NotImplementedError: an operation that is not emulated.
    """
    graph = tf.compat.v1.get_default_graph()
    _order_variables(ReplicatedGraph(operations))
    program = ReplicatedGraph([op for op in graph.get_operations() if op._id >= operations[0]._id])
    template = _Template(graph, program, num_cores)
    with (
        graph.control_dependencies(None),
        graph.name_scope(None),
        graph.device(core_builder.DEVICE),
    ):
        variables, ready = _copy_variables(program, num_cores)
        with graph.control_dependencies([_group([*ready, *program.external_controls])]):
            inputs = [_inputs(program, core, variables) for core in range(num_cores)]
        results = [template.copy(core, inputs[core]) for core in range(num_cores)]
        with graph.control_dependencies(
            [_group([tensor for result in results for tensor in result])]
        ):
            return [tf.identity(tensor) for tensor in results[0]]


def _order_variables(program):
    live = [op for name, op in program.operations.items() if name in program.live]
    variable_order.add_edges(live, sequential_loops=True)


def _group(dependencies):
    """Returns one operation that runs after all dependencies (fewer edges than all pairs)."""
    with tf.control_dependencies(dependencies):
        return tf.no_op()


def _copy_variables(program, num_cores):
    """Returns `{name of a handle: [handle of core i]}`, and the ops that create the copies."""
    variables, ready = {}, []
    for name, handle in program.external_tensors.items():
        if handle.dtype != tf.resource or handle.op.type != "VarHandleOp":
            continue
        dtype, shape = handle.op.get_attr("dtype"), handle.op.get_attr("shape")
        variables[name] = [handle]
        if num_cores > 1:
            value = gen_resource_variable_ops.read_variable_op(handle, dtype)
        for core in range(1, num_cores):
            copy = gen_resource_variable_ops.var_handle_op(
                dtype, shape, shared_name=f"core_{core}/{handle.op.name}", name=f"core_{core}_copy"
            )
            variables[name].append(copy)
            ready.append(gen_resource_variable_ops.assign_variable_op(copy, value))
    return variables, ready


def _inputs(program, core, variables):
    """Returns `{name of an external tensor: its value on one core}`."""

    def value_on_core(name, tensor):
        if name in program.replicated_inputs:
            return program.replicated_inputs[name][core]
        return variables[name][core] if name in variables else tensor

    # tf.identity adds the surrounding control dependencies.
    return {
        name: tf.identity(value_on_core(name, tensor))
        for name, tensor in program.external_tensors.items()
    }


class _Template:
    """The nodes of the program, to copy for each core."""

    def __init__(self, graph, program, num_cores):
        self._results = program.results
        self._num_cores = num_cores
        self._library = Library(graph, num_cores)
        self._common = graph_pb2.GraphDef()  # nodes that are equal on all cores
        self._common.versions.producer = graph.graph_def_versions.producer
        self._nodes, self._different, self._used = {}, [], set()
        for name, op in program.operations.items():
            if name in program.live:
                self._add(op, program.operations)
        _refuse_without_kernel(self._different, program, self._library)

    def _add(self, op, inside):
        node = node_def_pb2.NodeDef()
        # Control inputs from outside are added to the inputs: see run_on_cores.
        copy_node(op, node, inside, core_builder.DEVICE)
        for name in _ATTRIBUTES:
            node.attr.pop(name, None)
        if "parallel_iterations" in node.attr:
            node.attr["parallel_iterations"].i = 1  # keeps sums of two iterations apart
        self._nodes[node.name] = node
        self._used.update(tensor.name for tensor in op.inputs)
        if core_builder.differs(node, self._library, self._num_cores):
            self._different.append(node)
        else:
            self._common.node.add().CopyFrom(node)

    def copy(self, core, inputs):
        """Imports the program of one core into the default graph; returns its results."""
        graph_def = graph_pb2.GraphDef()
        graph_def.CopyFrom(self._common)
        builder = core_builder.CoreBuilder(
            core, self._num_cores, self._library, self._nodes, graph_def=graph_def
        )
        for node in self._different:
            builder.add_copy(node)
        inputs = {name: tensor for name, tensor in inputs.items() if name in self._used}
        return tf.import_graph_def(graph_def, inputs, self._results, name=f"core_{core}")


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


def _unsupported(node, where, library, seen):
    """Yields (operation type, file:line) for each unsupported operation of a node."""
    names = called(node, library)
    is_emulated = names or node.op in core_builder.REWRITES or kernels.has_cpu_kernel(node)
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
