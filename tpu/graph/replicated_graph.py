"""The replicated part of a TPUEstimator graph: the program of one core.

TPUEstimator marks its operations with the attribute `_tpu_replicate`. TensorFlow's TPU runtime
turns them into the program of every core; TensorFlow on a CPU has no such pass.
"""

from __future__ import annotations

import functools

import tensorflow as tf

from tpu.graph.control_flow import GraphAnalysis
from tpu.graph.nodes import op_name
from tpu.graph.walks import ancestors, root, value_parents

_REPLICATE = "_tpu_replicate"
# Operations that carry the attribute, but that no core runs.
_METADATA_OPS = ("TPUReplicateMetadata", "TPUCompilationResult")
_CONTROL_FLOW_OPS = ("Enter", "Switch")
# Operations that run though no result depends on them.
_QUEUES = (
    *("OutfeedEnqueue", "OutfeedEnqueueTuple", "OutfeedEnqueueTupleV2", "OutfeedEnqueueV2"),
    "RecvTPUEmbeddingActivations",
)


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
        return {*ancestors(self.ends())}

    @functools.cached_property
    def analysis(self) -> GraphAnalysis:
        """The loops and conditionals around the operations."""
        return GraphAnalysis(self.operations.values())

    @functools.cached_property
    def computed(self) -> set[str]:
        """Names of the operations whose values are used. XLA drops pure control dependencies."""
        updates = [op for op in self.operations.values() if op.op_def.is_stateful]
        updates = [op for op in updates if op.name in self.live]
        return {*ancestors([*self.ends(), *updates], value_parents)}

    @functools.cached_property
    def used(self) -> set[str]:
        """Names of the tensors that live operations have as inputs."""
        live = (op for name, op in self.operations.items() if name in self.live)
        return {tensor.name for op in live for tensor in op.inputs}

    def ends(self) -> list[tf.Operation]:
        """Returns the operations of the results, and those that run though no result needs them."""
        results = [self.operations.get(op_name(name)) for name in self.results]
        queues = [op for op in self.operations.values() if op.type in _QUEUES]
        return [*filter(None, results), *queues]

    @property
    def infeed(self) -> list[tf.Tensor]:
        """The tensors that a core dequeues at each step."""
        found = (op for op in self.operations.values() if op.type == "InfeedDequeueTuple")
        return next((list(op.outputs) for op in found), [])

    def on_first_core(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns the value of an external tensor on core 0: replicated variables differ."""
        return self.replicated_inputs.get(tensor.name, [tensor])[0]


def group_assignment(op):
    """Returns the groups of the operation of a collective, lists of cores.

    None if they are unknown; [] for one group of all cores.
    """
    groups = tf.get_static_value(root(op.inputs[1]))
    return None if groups is None else groups.tolist()
