"""The nodes of the program of a TPU core, as a CPU runs them: those of one core, before the copies.

Inputs from outside are nodes as well, by aliases: handles of variables, and Placeholders.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tpu import findings
from tpu.emulator import (
    agreement,
    core_builder,
    functions,
    kernels,
    sharing,
    xla_values,
)
from tpu.graph import nodes as node_defs
from tpu.graph import variables, walks
from tpu.graph.control_flow import GraphAnalysis
from tpu.graph.replicated_graph import ReplicatedGraph

# Attributes of operations that a CPU has no use for.
_ATTRIBUTES = ("_XlaSharding", "_xla_outside_compilation")


class CoreProgram:
    """The nodes of a core.

    Attributes:
      nodes: `{name: NodeDef}`.
      prefix: scope for nodes that are added, such as aliases.
      inputs: `{alias: tensor from outside}`.
      outside: `{alias: NodeDef of the source of the tensor}`.
      sharing: what all cores share.
      library: the functions that the nodes call.
    """

    def __init__(self, graph, program: ReplicatedGraph, num_cores: int):
        """Raises NotImplementedError for what emulated cores cannot run.

        Args:
          graph: the graph of the program.
          program: its replicated part.
          num_cores: number of cores.
        """
        self._operations = {
            name: op for name, op in program.operations.items() if name in program.live
        }
        self.inputs = {}
        self._aliases = {}  # {name of a tensor from outside: its alias}
        self.prefix = _free_prefix("external", program.operations)
        for name, tensor in program.external_tensors.items():
            if name in program.used:
                alias = f"{self.prefix}/value_{len(self.inputs)}"
                self.inputs[alias], self._aliases[name] = tensor, alias
        self.library = functions.Library(graph, num_cores)
        rewriter = xla_values.Rewriter(graph, self.library)
        nodes = [node for op in self._operations.values() for node in self._convert(op, rewriter)]
        self._refuse([node for node in nodes if self.library.differs(node)])
        self.nodes = {node.name: node for node in nodes}
        self.outside = {
            alias: walks.root(tensor).op.node_def for alias, tensor in self.inputs.items()
        }
        analysis = self._analyze()
        differ = {
            alias: len({*map(id, program.replicated_inputs.get(tensor.name, ()))}) > 1
            for alias, tensor in self.inputs.items()
        }
        self.sharing = sharing.find(analysis, differ, self.library)
        # Cores agree before conditionals and loops with collectives.
        if num_cores > 1:
            added = agreement.add_nodes(
                analysis, self.nodes, self._operations, self.sharing, self.library, num_cores
            )
            self.nodes.update({node.name: node for node in added})

    def user_line(self, name: str) -> str:
        """Returns the "file:line" of the user's code of a node; "" if unknown."""
        return findings.user_line(self._operations[name]) if name in self._operations else ""

    def _convert(self, op, rewriter):
        """Returns the NodeDefs of an operation."""
        node = node_def_pb2.NodeDef()
        # Control inputs from outside are added to the inputs: see `replication`.
        node_defs.copy_node(op, node, self._operations, core_builder.DEVICE)
        for name in _ATTRIBUTES:
            node.attr.pop(name, None)
        if "parallel_iterations" in node.attr:
            node.attr["parallel_iterations"].i = 1  # keeps sums of two iterations apart
        for i, name in enumerate(node.input):
            node.input[i] = self._aliases.get(name if ":" in name else f"{name}:0", name)
        if node.op == "Pow" and op.outputs[0].dtype.is_floating:
            exponent = _constant_scalar(op.inputs[1])
            if exponent in (2, 3):
                return kernels.products(node, exponent, self._free_name)
        return rewriter.rewrite(node, op, findings.user_line(op))

    def _free_name(self, name):
        return node_defs.free_name(name, self._operations)

    def _analyze(self):
        """Returns the analysis of the nodes and inputs: conversions add conditionals."""
        graph_def = graph_pb2.GraphDef(node=self.nodes.values())
        called = node_defs.all_called(self.nodes.values(), self.library.find)
        graph_def.library.function.extend(called.values())
        for alias, tensor in self.inputs.items():
            node = graph_def.node.add(name=alias)
            if tensor.op.type == "VarHandleOp":
                node.op = tensor.op.type
                for name in ("container", "dtype", "shape"):
                    node.attr[name].CopyFrom(tensor.op.node_def.attr[name])
                node.attr["shared_name"].s = variables.name_of(tensor.op)[1].encode()
            else:
                node.op = "Placeholder"
                node_defs.set_attributes(node, dtype=tensor.dtype)
        with tf.Graph().as_default() as graph:
            tf.import_graph_def(graph_def, name="")
        return GraphAnalysis(graph.get_operations())

    def _refuse(self, nodes):
        """Raises NotImplementedError for nodes that emulated cores cannot run."""
        for node in nodes:
            for kind, where in _unsupported(node, self.user_line(node.name), self.library, set()):
                name = node.name if kind == node.op else f"{node.name}, a call of a function"
                raise NotImplementedError(
                    f"the emulator does not support {kind} ('{name}', at "
                    f"{where or 'unknown line'}): TensorFlow has no CPU kernel for it. Remove the "
                    "operation, or run it on a TPU"
                )
        _refuse_other_outfeeds(nodes, self.user_line)


def _constant_scalar(tensor):
    """Returns the value of a constant, or of a difference, as in the gradient of a power."""
    tensor = walks.root(tensor)
    if tensor.op.type == "Sub":
        values = [_constant_scalar(value) for value in tensor.op.inputs]
        return None if None in values else values[0] - values[1]
    value = tf.get_static_value(tensor)
    return None if value is None or value.ndim else value.item()


def _free_prefix(prefix, names):
    """Returns `prefix`, longer if one of the names is in this scope."""
    while any(name == prefix or name.startswith(f"{prefix}/") for name in names):
        prefix += "_"
    return prefix


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
