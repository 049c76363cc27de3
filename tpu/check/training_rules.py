"""Lint rules about the updates of variables: gradients, their sums over the cores, their order."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tpu.check.conditions import are_exclusive, conditions_of
from tpu.check.flat_program import place_of, variable_name
from tpu.check.placement import used_inputs
from tpu.check.step import Step, rule
from tpu.emulator.graph_analysis import ancestors, topological_order
from tpu.findings import ERROR, WARNING

_OPTIMIZER_OPS = ("ResourceApply", "ResourceSparseApply")
# Sums over the cores, and other exchanges of values between cores.
_SUMS = ("CrossReplicaSum", "XlaAllReduce", "XlaReduceScatter", "CollectiveReduceV2")
_EXCHANGES = ("AllToAll", "CollectivePermute", "XlaAllGather", "CollectiveGatherV2")
# Operations that return the per-core batch.
_BATCH_OPS = ("InfeedDequeueTuple", "InfeedDequeue", "RecvTPUEmbeddingActivations")
# Random numbers: other ones on each core, and those that a seed determines.
_OWN_RANDOM_OPS = (
    *("Random", "TruncatedNormal", "ParameterizedTruncatedNormal", "Multinomial"),
    *("StatefulUniform", "StatefulStandardNormal", "StatefulTruncatedNormal", "StatefulRandom"),
)
_RANDOM_OPS = (*_OWN_RANDOM_OPS, "StatelessRandom", "StatelessTruncatedNormal")
BATCH_NORMS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
_EMBEDDING_GRADIENTS = ("SendTPUEmbeddingGradients", "XlaSendTPUEmbeddingGradients")
# Operations that depend only on the shape of a tensor, which is the same on all cores.
SHAPE_OPS = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike", "BroadcastGradientArgs")
# What clips a gradient, or computes the factor that does.
_CLIP_OPS = ("Minimum", "Maximum", "ClipByValue")
_DIFFERENCE_OPS = ("AssignSubVariableOp", "AssignAddVariableOp")
_COMPARISONS = ("Greater", "GreaterEqual", "Less", "LessEqual")
# Variables by which TensorFlow differentiates TPU embeddings.
_EMBEDDING_DUMMIES = "tpu_embedding_dummy_table_variable"
_READ_OPS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")
# Why a value differs between cores.
_BATCH, _RANDOM = "batch", "random numbers"


@rule
def check_cross_replica_sums(step: Step):
    """Updates of trainable variables with the gradients of a single core."""
    if step.mode != "train" or step.num_replicas == 1:
        return
    waiting = _conditional_collectives(step)
    for op in step.updates:
        source = _source_of_one_core(step, op) if _trains(step, op) else ""
        if not source:
            continue
        name = f"'{variable_name(op)}'"
        if not _source_of_one_core(step, op, with_conditions=False):
            if any(c.predicate in waiting for c in conditions_of(step.program, op)):
                continue
            message = (
                f"{name} is updated under a condition that differs between cores. Compute the "
                "condition from tf.compat.v1.tpu.cross_replica_sum, the same on all cores"
            )
        elif source == _RANDOM:
            message = (
                f"{name} is updated with random numbers that differ between cores, so the weights "
                "differ, too. Use tf.random.stateless_normal or the like, with a seed from "
                "global_step"
            )
        else:
            message = (
                f"{name} is updated with the gradient of one core only. Wrap the optimizer in "
                "tf.compat.v1.tpu.CrossShardOptimizer if params['use_tpu']"
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
        is_weight = name in step.trainable or op.type.startswith(_OPTIMIZER_OPS)
        if is_weight or name in states or not step.runs(op):
            continue
        if _source_of_one_core(step, op):
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
    for op in step.find_ops(*_SUMS):
        for clip in _clips(op):
            clipped.setdefault(place_of(clip) or clip.name, clip)
    for clip in clipped.values():
        message = (
            f"each core clips its own gradient ({clip.name}) before the sum over the cores, so "
            "the result depends on the number of cores. Clip after CrossShardOptimizer has summed, "
            "or scale the limit"
        )
        yield WARNING, "clip-before-sum", message, clip


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


@rule
def check_update_order(step: Step):
    """Variables that an update reads, and another operation changes, in no given order."""
    if step.mode != "train":
        return
    updated = {name for name in step.updated if not name.startswith(_EMBEDDING_DUMMIES)}
    reads = [op for op in step.operations if op.type in _READ_OPS and variable_name(op) in updated]
    updates = [op for op in step.updates if step.runs(op)]
    running = [*step.placement.on_core.values(), *step.placement.on_host.values()]
    inputs = {op: set(_parents(step, op, controls=True)) for op in running}
    ordered = topological_order(inputs, {op: op._id for op in running})
    bits = {op.name: 1 << i for i, op in enumerate([*reads, *updates])}
    before = _ancestor_bits(step, ordered, bits, controls=True)
    values = _ancestor_bits(step, ordered, bits, controls=False)
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
            is_ordered = is_ordered or are_exclusive(step.program, read, update)
            if not is_ordered and name not in found:
                found.add(name)
                message = (
                    f"'{name}' is read for an update and changed in the same step, in no given "
                    "order: whether the read sees the old or the new value may differ. Add "
                    "tf.control_dependencies"
                )
                yield WARNING, "unordered-update", message, read


def _unused_optimizers(step, unused):
    """Yields a finding for each place in the code whose optimizer updates nothing."""
    places = {}
    for name, updates in unused.items():
        for op in updates:
            is_assigned = name in step.trainable and _sources(step, op).has_gradient
            if op.type.startswith(_OPTIMIZER_OPS) or is_assigned:
                places.setdefault((place_of(op), _optimizer_name(op)), {}).setdefault(name, op)
                break
    is_trained = step.updated & step.trainable or step.find_ops(*_EMBEDDING_GRADIENTS)
    is_trained = is_trained or any(
        op.type.startswith(_OPTIMIZER_OPS) for op in step.updates if step.runs(op)
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
    return f"'{update.name}'" if update.type.startswith(_OPTIMIZER_OPS) else "an assignment"


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
    sources = _sources(step, update)
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


class _Sources(NamedTuple):
    """The sources of the value of an update.

    Attributes:
      has_batch: True if from examples or random numbers, other than through gradients.
      has_gradient: True if from gradients.
      variables: `{name of a variable: shape}`, other than through gradients.
    """

    has_batch: bool
    has_gradient: bool
    variables: dict[str, tf.TensorShape]


def _sources(step, update):
    """Returns the `_Sources` of an update."""
    has_batch = has_gradient = False
    variables, seen, pending = {}, set(), [value.op for value in update.inputs[1:]]
    while pending:
        op = pending.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        if getattr(op, "is_gradient", False):
            has_gradient = True
        elif op.type in _BATCH_OPS or op.type.startswith(_RANDOM_OPS):
            has_batch = True
        elif op.type in _READ_OPS:
            variables[variable_name(op)] = op.outputs[0].shape
        elif op.type not in SHAPE_OPS:
            pending += _value_parents(step, op)
    return _Sources(has_batch, has_gradient, variables)


def _update_ops(step):
    """Returns the operations that run with the collection UPDATE_OPS."""
    items = step.all_operations[0].graph.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    names = [getattr(item, "op", item).name for item in items]
    known = step.program.operations
    found = ancestors([known[name] for name in names if name in known])
    return set(found.values())


def _is_read(step, name):
    """Returns True if an operation that runs reads a variable."""
    return any(op.type in _READ_OPS and variable_name(op) == name for op in step.operations)


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


def _trains(step, update):
    """Returns True for an update of a weight that runs."""
    is_weight = update.type.startswith(_OPTIMIZER_OPS) or variable_name(update) in step.trainable
    return is_weight and step.runs(update)


def _conditional_collectives(step):
    """Returns `{predicate that differs between cores: (first collective, Condition)}`."""
    checked, found = {}, {}
    for op in step.find_ops(*_SUMS, *_EXCHANGES):
        for condition in conditions_of(step.program, op):
            predicate = condition.predicate
            if predicate not in checked:
                checked[predicate] = _source_of_one_core(step, predicate)
            if checked[predicate]:
                found.setdefault(predicate, (op, condition))
    return found


def _states_that_train(step, states):
    """Returns the names of the variables whose values reach updates of weights."""
    reads = [op for op in step.operations if op.type in _READ_OPS and variable_name(op) in states]
    bits = {op.name: 1 << i for i, op in enumerate(reads)}
    running = [*step.placement.on_core.values(), *step.placement.on_host.values()]
    inputs = {op: set(_parents(step, op, controls=True)) for op in running}
    ordered = topological_order(inputs, {op: op._id for op in running})
    values = _ancestor_bits(step, ordered, bits, controls=False)
    trained = 0
    for op in step.updates:
        # Without any sum, the update itself is an error.
        if _trains(step, op) and not _source_of_one_core(step, op):
            trained |= values[op.name]
    return {variable_name(op) for op in reads if trained & bits[op.name]}


def _source_of_one_core(step, operation, with_conditions=True):
    """Returns why an operation has another value on each core: "batch", "random numbers" or "".

    A sum over the cores makes values the same. Follows non-trainable variables too, such as those
    that accumulate gradients. "" if cores exchange values in another way, which may add up to a
    sum.

    Args:
      step: the `Step`.
      operation: the operation.
      with_conditions: False to leave out the conditions of conditionals and loops.
    """
    seen, pending, found = set(), [operation], set()
    while pending:
        op = pending.pop()
        if op.type in _EXCHANGES:
            return ""
        if op.type in _BATCH_OPS:
            found.add(_BATCH)
        elif op.type.startswith(_OWN_RANDOM_OPS):
            found.add(_RANDOM)
        if op.name not in seen and op.type not in (*_SUMS, *SHAPE_OPS):
            seen.add(op.name)
            parents = _value_parents(step, op)
            pending += parents[:1] if op.type == "Switch" and not with_conditions else parents
            if op.type in _READ_OPS and variable_name(op) not in step.trainable:
                pending += step.updates_by_variable.get(variable_name(op), [])
    return _BATCH if _BATCH in found else min(found, default="")


def _value_parents(step, op):
    """Returns the operations that the values of an operation are computed from."""
    parents = [tensor.op for tensor in _value_inputs(op)]
    if op.type == "StackPopV2":
        parents += step.pushes.get(variable_name(op), [])
    return parents


def _value_inputs(op):
    """Returns the inputs that the values of an operation are computed from.

    In training, a fused batch norm has the moving averages as inputs, but does not use them.
    """
    inputs = used_inputs(op)
    if op.type in BATCH_NORMS and op.get_attr("is_training"):
        return inputs[:3] if op.get_attr("exponential_avg_factor") == 1 else inputs
    return inputs


def _clips(cross_replica_sum):
    """Returns the operations that clip a gradient between its computation and its sum."""
    region, pending, has_gradient = {}, [cross_replica_sum.inputs[0].op], set()
    while pending:
        op = pending.pop()
        if op.name in region:
            continue
        region[op.name] = op
        if getattr(op, "is_gradient", False):
            has_gradient.add(op.name)
        else:
            pending += [tensor.op for tensor in op.inputs]
    if cross_replica_sum.inputs[0].op.name in has_gradient:
        return []
    found = []
    for op in region.values():
        if op.name not in has_gradient and _is_clip(op):
            found += [op] if _reaches(op, region, has_gradient) else []
    return found


def _is_clip(op):
    """Returns True for a limit; False for the choice of finite values."""
    if op.type in ("SelectV2", "Select"):
        return op.inputs[0].op.type in _COMPARISONS
    return op.type in _CLIP_OPS


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
    parents = [tensor.op for tensor in _value_inputs(op) if tensor.op.type != "NextIteration"]
    if op.type == "Exit":  # after the last iteration
        merges = [tensor.op for switch in parents for tensor in switch.inputs[:1]]
        parents += [t.op for merge in merges for t in merge.inputs if t.op.type == "NextIteration"]
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
