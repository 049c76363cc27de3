"""The program of one core, as TPUEstimator leaves it in the graph.

It is a *cluster*: operations marked with the attribute `_tpu_replicate`. In a TPU's runtime they
become the program of every core; TensorFlow on a CPU has no such pass.
"""

from __future__ import annotations

import functools

import tensorflow as tf

_MARK = "_tpu_replicate"
# Marked as of the cluster, but nothing that a core runs.
_MARKERS = ("TPUReplicateMetadata", "TPUCompilationResult")
_CONTROL_FLOW = ("Enter", "Switch")
# What a node of the cluster must lose outside of it; `_class` is colocation with what is outside.
_ATTRIBUTES = (_MARK, "_class")


class Cluster:
    """The operations of one core, and what they share with the rest of the graph.

    Attributes:
      operations: `{name: operation}`.
      external_tensors: `{name: tensor}` that come from outside.
      external_controls: operations outside that some inside wait for.
      replicated: `{name of an external tensor: [the tensor that core i gets in its place]}`.
      results: names of the tensors that leave.
    """

    def __init__(self, operations):
        self.operations = {
            op.name: op
            for op in operations
            if _MARK in op.node_def.attr and op.type not in _MARKERS
        }
        self.external_tensors, controls = {}, {}
        for op in self.operations.values():
            for tensor in op.inputs:
                if tensor.op.name not in self.operations:
                    self.external_tensors[tensor.name] = tensor
            for control in op.control_inputs:
                if control.name not in self.operations and control.type not in _MARKERS:
                    controls[control.name] = control
        self.external_controls = list(controls.values())
        self.replicated = {
            op.outputs[0].name: list(op.inputs)
            for op in operations
            if op.type == "TPUReplicatedInput"
        }
        self.results = [op.inputs[0].name for op in operations if op.type == "TPUReplicatedOutput"]

    @property
    def has_control_flow(self) -> bool:
        """Whether a loop or a condition is laid out in nodes of the graph."""
        return any(op.type in _CONTROL_FLOW for op in self.operations.values())

    @functools.cached_property
    def live(self) -> set[str]:
        """Names of the operations that a result or the outfeed depends on: those that run."""
        return self.before(self._ends())

    @functools.cached_property
    def computed(self) -> set[str]:
        """Names of those whose numbers are used. XLA drops what others only wait for."""
        updates = [op for op in self.operations.values() if op.op_def.is_stateful]
        updates = [op for op in updates if op.name in self.live]
        return self.before([*self._ends(), *updates], controls=False)

    def _ends(self):
        results = [self.operations[name.split(":")[0]] for name in self.results]
        return [*results, self.the("OutfeedEnqueueTuple")]

    def before(self, operations, controls: bool = True) -> set[str]:
        """Names of the operations that these depend on, themselves included."""
        seen, open_ = set(), [op for op in operations if op is not None]
        while open_:
            op = open_.pop()
            if op.name not in seen:
                seen.add(op.name)
                open_ += [tensor.op for tensor in op.inputs]
                open_ += op.control_inputs if controls else []
        return seen

    @property
    def infeed(self) -> list[tf.Tensor]:
        """What comes in at each step."""
        dequeue = self.the("InfeedDequeueTuple")
        return list(dequeue.outputs) if dequeue is not None else []

    def the(self, kind):
        """Returns the one operation of a type, or None."""
        found = [op for op in self.operations.values() if op.type == kind]
        return found[0] if found else None


def copy_node(op, node, inside, device=""):
    """Makes `node`, a NodeDef, what `op` is, without what holds it in the cluster.

    Control inputs from outside of `inside`, names of operations, are left out.
    """
    node.CopyFrom(op.node_def)
    node.device = device
    for attribute in _ATTRIBUTES:
        node.attr.pop(attribute, None)
    kept = [name for name in node.input if name[0] != "^" or name[1:] in inside]
    del node.input[:]
    node.input.extend(kept)


def groups_of(op):
    """Returns the group assignment of a CrossReplicaSum, a list of lists of cores."""
    tensor = op.inputs[1]
    while tensor.op.type in ("Enter", "Identity"):
        tensor = tensor.op.inputs[0]
    return tf.get_static_value(tensor).tolist()
