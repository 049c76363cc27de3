"""Lint rules about the updates of variables: gradients, their sums over the cores, their order."""

from __future__ import annotations

import tensorflow as tf

from tpu.check.step import OPTIMIZER_OPS, Step, rule
from tpu.check.value_flow import RANDOM_NUMBERS, find_clips, reached_by, source_of_one_core
from tpu.findings import ERROR, WARNING
from tpu.graph.flat_program import place_of
from tpu.graph.op_types import EXCHANGES, READS, SUMS
from tpu.graph.variables import variable_name

_DIFFERENCE_OPS = ("AssignSubVariableOp", "AssignAddVariableOp")
# Variables by which TensorFlow differentiates TPU embeddings.
_EMBEDDING_DUMMIES = "tpu_embedding_dummy_table_variable"


@rule
def check_cross_replica_sums(step: Step):
    """Updates of trainable variables with the gradients of a single core."""
    if step.mode != "train" or step.num_replicas == 1:
        return
    waiting = _conditional_collectives(step)
    for op in step.updates:
        source = source_of_one_core(step, op) if _trains(step, op) else ""
        if not source:
            continue
        name = f"'{variable_name(op)}'"
        if not source_of_one_core(step, op, with_conditions=False):
            if any(c.predicate in waiting for c in step.program.analysis.conditions_of(op)):
                continue
            message = (
                f"{name} is updated under a condition that differs between cores. Compute the "
                "condition from tf.compat.v1.tpu.cross_replica_sum, the same on all cores"
            )
        elif source == RANDOM_NUMBERS:
            message = (
                f"{name} is updated with random numbers that differ between cores, so the weights "
                "differ, too. Use tf.random.stateless_normal or the like, with a seed from "
                "global_step"
            )
        else:
            message = (
                f"{name} is updated with a gradient that is not summed over all cores. Wrap the "
                "optimizer in tf.compat.v1.tpu.CrossShardOptimizer if params['use_tpu']"
            )
        yield ERROR, "no-cross-replica-sum", message, op


@rule
def check_state_per_core(step: Step):
    """State that each core updates with its own batch, and that the training reads.

    The moving averages of batch norm are such a state, too, but the training does not read them.
    """
    if step.mode != "train" or step.num_replicas == 1:
        return
    states = {}
    for op in step.updates:
        name = variable_name(op)
        is_weight = name in step.trainable or op.type.startswith(OPTIMIZER_OPS)
        if is_weight or name in states or not step.runs(op):
            continue
        if source_of_one_core(step, op):
            states[name] = op
    if not states:
        return
    used = _states_that_train(step, states)
    for name, op in states.items():
        if name in used:
            message = (
                f"'{name}' has another value on each core, and after each training loop "
                "(iterations_per_loop steps) all cores have that of core 0. Use "
                "tf.compat.v1.tpu.cross_replica_sum for what is added to it; to accumulate "
                "gradients without, iterations_per_loop must be a multiple of the accumulated steps"
            )
            yield WARNING, "per-core-state", message, op


@rule
def check_conditional_collectives(step: Step):
    """Collectives that only some cores reach: they wait for the others without an end."""
    if step.num_replicas == 1:
        return
    for op, condition in _conditional_collectives(step).values():
        what = "loop" if condition.branch is None else "conditional"
        message = (
            f"{op.type} is inside a {what} whose condition differs between cores: those that reach "
            "it wait for the others without an end. Compute the condition from "
            "tf.compat.v1.tpu.cross_replica_sum, the same on all cores"
        )
        yield ERROR, "conditional-collective", message, op


@rule
def check_global_step(step: Step):
    """A global_step that no operation increments: the training never ends."""
    names = step.variables(tf.compat.v1.GraphKeys.GLOBAL_STEP)
    if step.mode != "train" or not names or names & step.updated:
        return
    updates = [op for name in names for op in step.updates_by_variable.get(name, [])]
    updates += [op for op in step.updates if _trains(step, op)]
    message = (
        f"'{min(names)}' is never incremented, so the training never ends. Pass "
        "tf.compat.v1.train.get_global_step() to minimize or apply_gradients, or group "
        "global_step.assign_add(1) with the train_op"
    )
    if updates:
        yield ERROR, "update-never-runs", message, updates[0]


@rule
def check_clipping(step: Step):
    """Gradients that each core clips before they are summed over the cores."""
    if step.mode != "train" or step.num_replicas == 1:
        return
    clipped = {}  # by line: tf.clip_by_norm alone has three operations
    for op in step.find_ops(*SUMS):
        for clip in find_clips(op):
            clipped.setdefault(place_of(clip) or clip.name, clip)
    for clip in clipped.values():
        message = (
            f"each core clips its own gradient ({clip.name}) before the sum over the cores, so "
            "the result depends on the number of cores. Clip after CrossShardOptimizer has summed, "
            "or scale the limit"
        )
        yield WARNING, "clip-before-sum", message, clip


@rule
def check_update_order(step: Step):
    """Variables that an update reads, and another operation changes, in no given order."""
    if step.mode != "train":
        return
    updated = {name for name in step.updated if not name.startswith(_EMBEDDING_DUMMIES)}
    reads = [op for op in step.operations if op.type in READS and variable_name(op) in updated]
    updates = [op for op in step.updates if step.runs(op)]
    bits = {op.name: 1 << i for i, op in enumerate([*reads, *updates])}
    before = reached_by(step, [*reads, *updates], controls=True)
    values = reached_by(step, [*reads, *updates], controls=False)
    found = set()
    for read in reads:
        name = variable_name(read)
        affected = [update for update in updates if values[update.name] & bits[read.name]]
        # Averages, as of a batch norm that is called twice: each difference is subtracted.
        is_average = all(
            variable_name(update) == name and update.type in _DIFFERENCE_OPS for update in affected
        )
        if is_average:
            continue
        for update in step.updates_by_variable[name]:
            is_ordered = before.get(update.name, ~0) & bits[read.name] or before[
                read.name
            ] & bits.get(update.name, ~0)
            is_ordered = is_ordered or step.program.analysis.are_exclusive(read, update)
            if not is_ordered and name not in found:
                found.add(name)
                message = (
                    f"'{name}' is read for an update and changed in the same step, in no given "
                    "order: whether the read sees the old or the new value may differ. Add "
                    "tf.control_dependencies"
                )
                yield WARNING, "unordered-update", message, read


def _trains(step, update):
    """Returns True for an update of a weight that runs."""
    is_weight = update.type.startswith(OPTIMIZER_OPS) or variable_name(update) in step.trainable
    return is_weight and step.runs(update)


def _conditional_collectives(step):
    """Returns `{predicate that differs between cores: (first collective, Condition)}`."""
    checked, found = {}, {}
    for op in step.find_ops(*SUMS, *EXCHANGES):
        for condition in step.program.analysis.conditions_of(op):
            predicate = condition.predicate
            if predicate not in checked:
                checked[predicate] = source_of_one_core(step, predicate)
            if checked[predicate]:
                found.setdefault(predicate, (op, condition))
    return found


def _states_that_train(step, states):
    """Returns the names of the variables whose values reach updates of weights."""
    reads = [op for op in step.operations if op.type in READS and variable_name(op) in states]
    values, trained = reached_by(step, reads, controls=False), 0
    for op in step.updates:
        # Without any sum, the update itself is an error.
        if _trains(step, op) and not source_of_one_core(step, op):
            trained |= values[op.name]
    return {variable_name(op) for i, op in enumerate(reads) if trained >> i & 1}
