"""Where the operations of a step run: on a core, on the host, or not at all.

A TPU runs what its results and the outfeed depend on. XLA drops asserts, and with them what only
they use. Outside compilation, explicit or automatic (soft device placement), moves operations to
the host, which the core then waits for at every step.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tpu.graph import nodes, tpu_kernels
from tpu.graph.replicated_graph import ReplicatedGraph
from tpu.graph.walks import ancestors, readers_of

# Attribute of operations that `tf.tpu.outside_compilation` marks.
OUTSIDE = "_xla_outside_compilation"
_HOST_DTYPES = {tf.string, tf.resource, tf.variant}
# XLA compiles them to nothing.
DROPPED_OPS = ("Assert",)


class Placement:
    """The operations of a step by place.

    Attributes:
      on_core: `{name: operation}` that the compiled program contains.
      on_host: `{name: operation}` that outside compilation places on the host.
      is_automatic: True if operations without a TPU kernel are placed on the host automatically.
    """

    def __init__(self, program: ReplicatedGraph):
        self.is_automatic = _has_soft_placement(program)
        names = ancestors(program.ends(), _used_parents)
        live = {name: op for name, op in program.operations.items() if name in names}
        self.on_host = {name: op for name, op in live.items() if self._is_outside(op)}
        self._follow_to_host(live)
        self.on_core = {name: op for name, op in live.items() if name not in self.on_host}

    def _is_outside(self, op):
        if is_outside(op):
            return True
        fault = tpu_kernels.find_fault(op) if self.is_automatic else None
        return fault is not None and fault[0] != "placeholder"

    def _follow_to_host(self, live):
        """Moves what passes only strings and resources to the host, such as a summary writer."""
        for op in reversed(live.values()):
            kinds = {tensor.dtype for tensor in op.outputs}
            if kinds and kinds <= _HOST_DTYPES and op.name not in self.on_host:
                readers = {reader.name for reader in readers_of(op)} & live.keys()
                if readers and readers <= self.on_host.keys():
                    self.on_host[op.name] = op

    def writers(self) -> set[str]:
        """Returns the names of the conditionals on the core that only write, such as summaries.

        Includes the identities of their results, which are used for control only.
        """
        conditionals = [op for op in self.on_core.values() if op.type in ("If", "StatelessIf")]
        found = set()
        for op in conditionals:
            if _only_writes(op):
                passed = readers_of(op)
                if all(r.type == "Identity" and not r.outputs[0].consumers() for r in passed):
                    found |= {op.name, *(reader.name for reader in passed)}
        return found

    def received(self) -> list[tf.Tensor]:
        """Returns the tensors that the core receives from outside compilation."""
        inputs = [tensor for op in self.on_core.values() for tensor in used_inputs(op)]
        named = {tensor.name: tensor for tensor in inputs if tensor.op.name in self.on_host}
        return list(named.values())


def is_outside(op) -> bool:
    """Returns True if `tf.tpu.outside_compilation` marks an operation, or a call around it."""
    while op is not None and OUTSIDE not in getattr(op, "source", op).node_def.attr:
        op = getattr(op, "caller", None)
    return op is not None


def used_inputs(op: tf.Operation) -> list[tf.Tensor]:
    """Returns the inputs of an operation that a TPU computes."""
    return [] if op.type in DROPPED_OPS else list(op.inputs)


def _only_writes(conditional):
    """Returns True if the only effects of a conditional's branches are those of host operations."""
    branches = [function.name for function in nodes.references(conditional.node_def)]
    functions = [nodes.definition(conditional.graph, name) for name in branches]
    inside = [node for function in functions for node in function.node_def]
    on_host = [
        node for node in inside if OUTSIDE in node.attr or not tpu_kernels.has_kernel(node.op)
    ]
    others = [node for node in inside if node not in on_host and node.op != "ReadVariableOp"]
    stateful = [node for node in others if op_def_registry.get(node.op).is_stateful]
    return bool(on_host) and not stateful


def _used_parents(op):
    return [*(tensor.op for tensor in used_inputs(op)), *op.control_inputs]


def _has_soft_placement(program):
    """Returns True for a graph built after `tf.config.set_soft_device_placement(True)`."""
    graph = next((op.graph for op in program.operations.values()), tf.Graph())
    metadata = [op for op in graph.get_operations() if op.type == "TPUReplicateMetadata"]
    return any(op.get_attr("allow_soft_placement") for op in metadata)
