"""The replicated part of a TPUEstimator graph: the program of one core.

TPUEstimator marks its operations with the attribute `_tpu_replicate`. TensorFlow's TPU runtime
turns them into the program of every core; TensorFlow on a CPU has no such pass.
"""

from __future__ import annotations

import functools

import tensorflow as tf

from tpu.emulator.graph_analysis import ancestors

_REPLICATE = "_tpu_replicate"
# Operations that carry the attribute, but that no core runs.
_METADATA_OPS = ("TPUReplicateMetadata", "TPUCompilationResult")
_CONTROL_FLOW_OPS = ("Enter", "Switch")
# Operations that run though no result depends on them.
_QUEUES = (
    *("OutfeedEnqueue", "OutfeedEnqueueTuple", "OutfeedEnqueueTupleV2", "OutfeedEnqueueV2"),
    "RecvTPUEmbeddingActivations",
)
# Attributes to remove from copies; `_class` is colocation with operations outside.
_ATTRIBUTES = (_REPLICATE, "_class")


class ReplicatedGraph:
    """The operations of one core, and their inputs and outputs.

    Attributes:
      operations: `{name: operation}`.
      external_tensors: `{name: tensor}`, inputs from outside of the replicated graph.
      external_controls: operations outside that are control inputs.
      replicated_inputs: `{name of an external tensor: [its value on core i]}`.
      results: names of the output tensors.
    """

    def __init__(self, operations):
        self.operations = {
            op.name: op
            for op in operations
            if _REPLICATE in op.node_def.attr and op.type not in _METADATA_OPS
        }
        self.external_tensors, controls = {}, {}
        for op in self.operations.values():
            for tensor in op.inputs:
                if tensor.op.name not in self.operations:
                    self.external_tensors[tensor.name] = tensor
            for control in op.control_inputs:
                if control.name not in self.operations and control.type not in _METADATA_OPS:
                    controls[control.name] = control
        self.external_controls = list(controls.values())
        self.replicated_inputs = {
            op.outputs[0].name: list(op.inputs)
            for op in operations
            if op.type == "TPUReplicatedInput"
        }
        self.results = [op.inputs[0].name for op in operations if op.type == "TPUReplicatedOutput"]

    @property
    def has_control_flow(self) -> bool:
        """True if it has version 1 loops or conditionals."""
        return any(op.type in _CONTROL_FLOW_OPS for op in self.operations.values())

    @functools.cached_property
    def live(self) -> set[str]:
        """Names of the operations that run: results and outfeed depend on them."""
        return {*ancestors(self._ends())}

    @functools.cached_property
    def computed(self) -> set[str]:
        """Names of the operations whose values are used. XLA drops pure control dependencies."""
        updates = [op for op in self.operations.values() if op.op_def.is_stateful]
        updates = [op for op in updates if op.name in self.live]
        ends = [*self._ends(), *updates]
        return {*ancestors(ends, parents=lambda op: [tensor.op for tensor in op.inputs])}

    @functools.cached_property
    def used(self) -> set[str]:
        """Names of the tensors that live operations have as inputs."""
        live = (op for name, op in self.operations.items() if name in self.live)
        return {tensor.name for op in live for tensor in op.inputs}

    def _ends(self):
        results = [self.operations[name.split(":")[0]] for name in self.results]
        return results + [op for op in self.operations.values() if op.type in _QUEUES]

    @property
    def infeed(self) -> list[tf.Tensor]:
        """The tensors that a core dequeues at each step."""
        dequeue = self.find_op("InfeedDequeueTuple")
        return list(dequeue.outputs) if dequeue is not None else []

    def on_first_core(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns the value of an external tensor on core 0: replicated variables differ."""
        return self.replicated_inputs.get(tensor.name, [tensor])[0]

    def find_op(self, op_type):
        """Returns the first operation of a type, or None."""
        found = [op for op in self.operations.values() if op.type == op_type]
        return found[0] if found else None


def copy_node(op, node, inside, device=""):
    """Copies `op` to the NodeDef `node`, without the attributes of the replicated graph.

    Drops control inputs that are not in `inside`, a collection of operation names.
    """
    node.CopyFrom(op.node_def)
    node.device = device
    for attribute in _ATTRIBUTES:
        node.attr.pop(attribute, None)
    kept = [name for name in node.input if name[0] != "^" or name[1:] in inside]
    del node.input[:]
    node.input.extend(kept)


def group_assignment(op):
    """Returns the group assignment of a CrossReplicaSum, a list of lists of cores."""
    tensor = op.inputs[1]
    while tensor.op.type in ("Enter", "Identity"):
        tensor = tensor.op.inputs[0]
    return tf.get_static_value(tensor).tolist()
