"""Lint rules about the updates of variables: gradients, their sums over the cores, their order."""

from __future__ import annotations

import tensorflow as tf

from tpu.check.placement import used_inputs
from tpu.check.sizes import GRADIENTS
from tpu.check.step import Step, rule, variable_name
from tpu.emulator.graph_analysis import topological_order
from tpu.findings import ERROR, WARNING

# What clips a gradient, or computes the factor that does.
_CLIP_OPS = ("Minimum", "Maximum", "ClipByValue", "SelectV2", "Select")
# Variables by which TensorFlow differentiates TPU embeddings.
_EMBEDDING_DUMMIES = "tpu_embedding_dummy_table_variable"
_READ_OPS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")


@rule
def check_cross_replica_sums(step: Step):
    """Updates of trainable variables with the gradients of a single core."""
    if step.mode != "train" or step.num_replicas == 1:
        return
    for op in step.updates:
        is_training = op.type.startswith(("ResourceApply", "ResourceSparseApply"))
        is_training = is_training or variable_name(op) in step.trainable
        if is_training and step.runs(op) and _depends_on_one_core(step, op):
            message = (
                f"'{variable_name(op)}' is updated with the gradient of one core only. Wrap the "
                "optimizer in tf.compat.v1.tpu.CrossShardOptimizer if params['use_tpu']"
            )
            yield ERROR, "no-cross-replica-sum", message, op


@rule
def check_clipping(step: Step):
    """Gradients that each core clips before they are summed over the cores."""
    if step.mode != "train" or step.num_replicas == 1:
        return
    clipped = {}
    for op in step.find_ops("CrossReplicaSum"):
        for clip in _clips(op):
            clipped.setdefault(clip.name, clip)
    for clip in clipped.values():
        message = (
            f"each core clips its own gradient ({clip.name}) before the sum over the cores, so "
            "the result depends on the number of cores. Clip after CrossShardOptimizer has summed, "
            "or scale the limit"
        )
        yield WARNING, "clip-before-sum", message, clip


@rule
def check_unused_updates(step: Step):
    """Updates that the train_op does not depend on. Unused updates of an evaluation are fine."""
    if step.mode != "train":
        return
    keys = tf.compat.v1.GraphKeys
    metrics = step.variables(keys.LOCAL_VARIABLES) | step.variables(keys.METRIC_VARIABLES)
    for name, updates in step.updates_by_variable.items():
        if name in metrics or any(step.runs(op) for op in updates):
            continue
        message = (
            f"'{name}' is never updated: the train_op does not depend on its update. Run the "
            "UPDATE_OPS before the train_op. Keras layers add none: run layer.updates"
        )
        yield ERROR, "update-never-runs", message, updates[0]


@rule
def check_update_order(step: Step):
    """Variables that an update reads, and another operation changes, in no given order."""
    if step.mode != "train":
        return
    updated = {
        name
        for name, ops in step.updates_by_variable.items()
        if any(map(step.runs, ops)) and not name.startswith(_EMBEDDING_DUMMIES)
    }
    reads = [op for op in step.operations if op.type in _READ_OPS and variable_name(op) in updated]
    updates = [op for op in step.updates if step.runs(op)]
    running = [*step.placement.on_core.values(), *step.placement.on_host.values()]
    inputs = {op: set(_parents(step, op, controls=True)) for op in running}
    ordered = topological_order(inputs, {op: op._id for op in running})
    bits = {op.name: 1 << i for i, op in enumerate([*reads, *updates])}
    before = _ancestor_bits(step, ordered, bits, controls=True)
    values = _ancestor_bits(step, ordered, bits, controls=False)
    affects = 0
    for update in updates:
        affects |= values[update.name]
    found = set()
    for read in reads:
        name = variable_name(read)
        for update in step.updates_by_variable[name]:
            is_ordered = before.get(update.name, ~0) & bits[read.name] or before[
                read.name
            ] & bits.get(update.name, ~0)
            if not is_ordered and affects & bits[read.name] and name not in found:
                found.add(name)
                message = (
                    f"'{name}' is read for an update and changed in the same step, in no given "
                    "order: whether the read sees the old or the new value may differ. Add "
                    "tf.control_dependencies"
                )
                yield WARNING, "unordered-update", message, read


def _depends_on_one_core(step, update):
    """Returns True if infeed data reaches an operation other than through a CrossReplicaSum.

    Follows non-trainable variables too, such as those that accumulate gradients.
    """
    seen, pending = set(), [update]
    while pending:
        op = pending.pop()
        if op.type == "InfeedDequeueTuple":
            return True
        if op.name not in seen and op.type not in ("CrossReplicaSum", "XlaAllReduce"):
            seen.add(op.name)
            pending += [tensor.op for tensor in op.inputs]
            if op.type == "ReadVariableOp" and variable_name(op) not in step.trainable:
                pending += step.updates_by_variable.get(variable_name(op), [])
    return False


def _clips(cross_replica_sum):
    """Returns the operations that clip a gradient between its computation and its sum."""
    region, pending, has_gradient = {}, [cross_replica_sum.inputs[0].op], set()
    while pending:
        op = pending.pop()
        if op.name in region:
            continue
        region[op.name] = op
        if GRADIENTS.search(op.name):
            has_gradient.add(op.name)
        else:
            pending += [tensor.op for tensor in op.inputs]
    if cross_replica_sum.inputs[0].op.name in has_gradient:
        return []
    found = []
    for op in region.values():
        if op.type in _CLIP_OPS and op.name not in has_gradient:
            found += [op] if _reaches(op, region, has_gradient) else []
    return found


def _reaches(op, region, ends):
    """Returns True if an operation depends on one of `ends`, inside a region."""
    seen, pending = set(), [op]
    while pending:
        current = pending.pop()
        if current.name in ends:
            return True
        if current.name not in seen and current.name in region:
            seen.add(current.name)
            pending += [tensor.op for tensor in current.inputs]
    return False


def _parents(step, op, controls):
    """Returns the operations of the step that an operation depends on, without back edges."""
    parents = [tensor.op for tensor in used_inputs(op) if tensor.op.type != "NextIteration"]
    parents += op.control_inputs if controls else []
    return [parent for parent in parents if parent.name in step.program.operations]


def _ancestor_bits(step, ordered, bits, controls):
    """Returns `{name: union of the bits of an operation and of all it depends on}`."""
    found = {}
    for op in ordered:
        union = bits.get(op.name, 0)
        for parent in _parents(step, op, controls):
            union |= found.get(parent.name, 0)
        found[op.name] = union
    return found
