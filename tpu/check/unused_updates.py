"""The lint rule about updates that the train_op does not depend on."""

from __future__ import annotations

import tensorflow as tf

from tpu.check.step import OPTIMIZER_OPS, Step, rule
from tpu.check.value_flow import find_sources
from tpu.findings import ERROR, WARNING
from tpu.graph.flat_program import place_of
from tpu.graph.op_types import READS
from tpu.graph.variables import variable_name
from tpu.graph.walks import ancestors

_EMBEDDING_GRADIENTS = ("SendTPUEmbeddingGradients", "XlaSendTPUEmbeddingGradients")


@rule
def check_unused_updates(step: Step):
    """Updates that the train_op does not depend on. Unused updates of an evaluation are fine.

    Only what is surely a mistake is an error: averages of batches or weights, and optimizers if
    nothing is trained. An assignment that nothing runs may be kept for later.
    """
    if step.mode != "train":
        return
    keys = tf.compat.v1.GraphKeys
    metrics = step.variables(keys.LOCAL_VARIABLES) | step.variables(keys.METRIC_VARIABLES)
    unused = {
        name: updates
        for name, updates in step.updates_by_variable.items()
        if name not in metrics and name not in step.updated
    }
    if unused:
        yield from _unused_optimizers(step, unused)
        yield from _unused_averages(step, unused)


def _unused_optimizers(step, unused):
    """Yields a finding for each place in the code whose optimizer updates nothing."""
    places = {}
    for name, updates in unused.items():
        for op in updates:
            is_assigned = name in step.trainable and find_sources(step, op).has_gradient
            if op.type.startswith(OPTIMIZER_OPS) or is_assigned:
                places.setdefault((place_of(op), _optimizer_name(op)), {}).setdefault(name, op)
                break
    is_trained = step.updated & step.trainable or step.find_ops(*_EMBEDDING_GRADIENTS)
    is_trained = is_trained or any(
        op.type.startswith(OPTIMIZER_OPS) for op in step.updates if step.runs(op)
    )
    for (_, optimizer), ops in places.items():
        first, *others = ops
        variables = f"'{first}'" + (f" and {len(others)} more" if others else "")
        if is_trained:
            message = (
                f"the update of {variables} by {optimizer} is not run: the train_op does not "
                "depend on it. This is right if another Estimator trains them, as in alternating "
                "training; otherwise add it to the train_op"
            )
            yield WARNING, "update-never-runs", message, ops[first]
        else:
            message = (
                f"nothing is trained: the train_op does not depend on the update of {variables} "
                f"by {optimizer}"
            )
            yield ERROR, "update-never-runs", message, ops[first]


def _optimizer_name(update):
    """Returns the name of an optimizer, such as "'Adam_1'", by the name of its update."""
    scope, is_found, _ = update.name.rpartition("/update_")
    if is_found:
        return f"'{scope}'"
    return f"'{update.name}'" if update.type.startswith(OPTIMIZER_OPS) else "an assignment"


def _unused_averages(step, unused):
    """Yields a finding for each variable whose unused update is surely meant to run."""
    update_ops = _update_ops(step)
    for name, updates in unused.items():
        kinds = {_kind_of_average(step, name, op, op in update_ops) for op in updates} - {""}
        if not kinds:
            continue
        message = f"'{name}' is never updated: the train_op does not depend on its update. "
        if not update_ops.isdisjoint(updates):
            message += "Run the UPDATE_OPS before the train_op"
        elif "batches" in kinds:
            message += (
                "Group the update with it. Those of Keras layers are in layer.updates, not in "
                "UPDATE_OPS"
            )
        elif "weights" in kinds:
            message += "Group the update, or the op of ExponentialMovingAverage.apply, with it"
        else:
            message += "Group the update with it"
        level = WARNING if kinds == {"copy"} else ERROR
        yield level, "update-never-runs", message, updates[0]


def _kind_of_average(step, name, update, is_update_op):
    """Returns what an unused update computes: "batches", "weights", "gradients", "copy" or "".

    "batches" and "weights" are averages, "gradients" a sum, "copy" that of trained weights into
    those that the step reads, such as a target network.
    """
    sources = find_sources(step, update)
    is_average = name in sources.variables  # such as m += 0.01 * (x - m)
    is_state = name not in step.trainable
    if is_state and (sources.has_batch or sources.has_gradient) and _is_read(step, name):
        return "gradients"  # for example accumulated ones, which an optimizer then reads
    shape = update.inputs[1].shape
    is_copied = any(
        other != name and other in step.updated & step.trainable and size == shape
        for other, size in sources.variables.items()
    )
    if is_copied and not sources.has_batch and not sources.has_gradient:
        if is_average:
            return "weights"
        if len(sources.variables) == 1 and _is_read(step, name):
            return "copy"
    is_statistic = is_update_op or (is_state and is_average and sources.has_batch)
    return "batches" if is_statistic and _is_trained(step, name) else ""


def _update_ops(step):
    """Returns the operations that run with the collection UPDATE_OPS."""
    items = step.all_operations[0].graph.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    names = [getattr(item, "op", item).name for item in items]
    known = step.program.operations
    found = ancestors([known[name] for name in names if name in known])
    return set(found.values())


def _is_read(step, name):
    """Returns True if an operation that runs reads a variable."""
    return any(op.type in READS and variable_name(op) == name for op in step.operations)


def _is_trained(step, name):
    """Returns False if a variable belongs to a frozen layer or network.

    The variables of a layer share the beginning of their names. Without trainable variables in the
    layer, those of the network around it decide.
    """
    layer = name.rpartition("/")[0]
    variables = step.variables(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    fixed = variables - step.trainable - step.changed
    if layer and _inside(layer, fixed):
        return False
    while layer and not _inside(layer, step.trainable):
        layer = layer.rpartition("/")[0]
    trainable = _inside(layer, step.trainable) if layer else step.trainable
    return not trainable or not step.updated.isdisjoint(trainable)


def _inside(scope, names):
    """Returns the names of a scope."""
    return {name for name in names if name == scope or name.startswith(f"{scope}/")}
