"""Sources of the values of a step: the batch, random numbers, gradients, variables."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tpu.graph import walks
from tpu.graph.op_types import BATCH_NORMS, EXCHANGES, RANDOM, READS, SHAPES, STATEFUL_RANDOM, SUMS
from tpu.graph.placement import used_inputs
from tpu.graph.variables import variable_name
from tpu.graph.walks import ancestors

# Operations that return the per-core batch.
_BATCH_OPS = ("InfeedDequeueTuple", "InfeedDequeue", "RecvTPUEmbeddingActivations")
# Operations that clip a gradient, or compute the factor that does.
_CLIP_OPS = ("Minimum", "Maximum", "ClipByValue")
_COMPARISONS = ("Greater", "GreaterEqual", "Less", "LessEqual")
# Why a value differs between cores.
BATCH, RANDOM_NUMBERS = "batch", "random numbers"


class Sources(NamedTuple):
    """The sources of the value of an update.

    Attributes:
      has_batch: True if from examples or random numbers, other than through gradients.
      has_gradient: True if from gradients.
      variables: `{name of a variable: shape}`, other than through gradients.
    """

    has_batch: bool
    has_gradient: bool
    variables: dict[str, tf.TensorShape]


def find_sources(step, update) -> Sources:
    """Returns the `Sources` of an update."""

    def is_of_batch(op):
        return op.type in _BATCH_OPS or op.type.startswith(RANDOM)

    def parents(op):
        is_end = _is_gradient(op) or is_of_batch(op) or op.type in (*READS, *SHAPES)
        return [] if is_end else _parents(step, op)

    found = ancestors([value.op for value in update.inputs[1:]], parents).values()
    others = [op for op in found if not _is_gradient(op)]
    variables = {variable_name(op): op.outputs[0].shape for op in others if op.type in READS}
    return Sources(any(map(is_of_batch, others)), len(others) < len(found), variables)


def source_of_one_core(step, operation, with_conditions=True) -> str:
    """Returns why an operation has another value on each core: BATCH, RANDOM_NUMBERS or "".

    A sum over the cores makes values the same, and so do sums over groups that join all cores.
    Follows non-trainable variables too, such as those that accumulate gradients. "" if cores
    exchange values in another way, which may add up to a sum. `with_conditions` is False to leave
    out the conditions of conditionals and loops.
    """

    def parents(op):
        if op.type in SHAPES or (op.type in SUMS and not groups_of(op)):
            return []
        found = _parents(step, op)
        if op.type == "Switch" and not with_conditions:
            return found[:1]
        if op.type in READS and variable_name(op) not in step.trainable:
            found += step.updates_by_variable.get(variable_name(op), [])
        return found

    found = ancestors([operation], parents).values()
    types = {op.type for op in found}
    groups = [group for op in found if op.type in SUMS for group in groups_of(op)]
    if not types.isdisjoint(EXCHANGES) or (groups and joins_all(groups, step.num_replicas)):
        return ""
    if not types.isdisjoint(_BATCH_OPS):
        return BATCH
    return RANDOM_NUMBERS if any(kind.startswith(STATEFUL_RANDOM) for kind in types) else ""


def groups_of(cross_replica_sum) -> list[list[int]]:
    """Returns the groups of a sum, lists of cores; [] if all cores are one, or they are unknown."""
    if cross_replica_sum.type not in ("CrossReplicaSum", "XlaAllReduce"):
        return []
    constant = walks.root(cross_replica_sum.inputs[1]).op
    if constant.type != "Const":
        return []
    groups = tf.make_ndarray(constant.get_attr("value")).tolist()
    return groups if len(groups) > 1 else []


def joins_all(groups, num_cores) -> bool:
    """Returns whether groups of cores that overlap lead from core 0 to all others."""
    joined, before = {0}, 0
    while len(joined) > before:
        before = len(joined)
        joined.update(*(group for group in groups if not joined.isdisjoint(group)))
    return len(joined) >= num_cores


def find_clips(cross_replica_sum) -> list:
    """Returns the operations that clip a gradient between its computation and its sum."""

    def parents(op):
        return [] if _is_gradient(op) else walks.value_parents(op)

    def readers(op):
        return [reader for reader in walks.readers_of(op) if reader.name in region]

    summed = cross_replica_sum.inputs[0].op
    region = ancestors([summed], parents)
    gradients = [op for op in region.values() if _is_gradient(op)]
    if summed in gradients:
        return []
    depends = ancestors(gradients, readers)
    return [
        op
        for name, op in region.items()
        if name in depends and not _is_gradient(op) and _is_clip(op)
    ]


def reached_by(step, operations, controls: bool) -> dict[str, int]:
    """Returns `{name: which of `operations` an operation of the step depends on}`, i as bit i.

    `controls` is True to follow control inputs too.
    """
    found, bits = {}, {op.name: 1 << i for i, op in enumerate(operations)}
    for op in step.ordered:
        union = bits.get(op.name, 0)
        for parent in parents_in_step(step, op, controls):
            union |= found.get(parent.name, 0)
        found[op.name] = union
    return found


def parents_in_step(step, op, controls: bool = True) -> list:
    """Returns the operations of the step that an operation depends on, without back edges."""
    parents = [tensor.op for tensor in _value_inputs(op) if tensor.op.type != "NextIteration"]
    if op.type == "Exit":  # after the last iteration
        merges = [tensor.op for switch in parents for tensor in switch.inputs[:1]]
        parents += [t.op for merge in merges for t in merge.inputs if t.op.type == "NextIteration"]
    parents += op.control_inputs if controls else []
    return [parent for parent in parents if parent.name in step.program.operations]


def _parents(step, op):
    """Returns the operations that the values of an operation are computed from."""
    parents = [tensor.op for tensor in _value_inputs(op)]
    if op.type == "StackPopV2":
        parents += step.program.pushes.get(variable_name(op), [])
    return parents


def _value_inputs(op):
    """Returns the inputs that the values of an operation are computed from.

    In training, a fused batch norm has the moving averages as inputs, but does not use them.
    """
    inputs = used_inputs(op)
    if op.type in BATCH_NORMS and op.get_attr("is_training"):
        return inputs[:3] if op.get_attr("exponential_avg_factor") == 1 else inputs
    return inputs


def _is_gradient(op):
    return getattr(op, "is_gradient", False)  # an operation outside of the step has no mark


def _is_clip(op):
    """Returns True for a limit; False for the choice of finite values."""
    if op.type in ("SelectV2", "Select"):
        return op.inputs[0].op.type in _COMPARISONS
    return op.type in _CLIP_OPS
