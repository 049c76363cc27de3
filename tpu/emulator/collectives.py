"""Collectives between emulated cores.

The first core of a group computes the result of each core in the order of the group, which makes
sums deterministic. Where all cores reach a collective together, its inputs and results are those of
other nodes. In functions, and in conditionals and loops that only some cores may enter, the cores
exchange values through queues.
"""

from __future__ import annotations

import tensorflow as tf

from tpu.graph.nodes import control_inputs, data_inputs, op_name, replace
from tpu.graph.replicated_graph import group_assignment

# XlaAllReduce and XlaReduceScatter: their reduction, and the operation for two values.
_REDUCTIONS = {"Add": "AddV2", "Mul": "Mul", "Min": "Minimum", "Max": "Maximum"}


def rewrite(builder, node):
    """Rewrites the NodeDef of a collective, with the `core_builder.CoreBuilder` of a core."""
    groups, combine = KINDS[node.op](builder, node)
    group = next(group for group in groups if builder.core in group)
    exchange(builder, node, group, combine)


def exchange(builder, node, group, combine):
    """Makes `node` the result of its core, computed from its first input on all cores of a group.

    Args:
      builder: the `core_builder.CoreBuilder` of the core.
      node: a NodeDef with an attribute T, the type of the first input and of the result.
      group: the cores.
      combine: function from the group and the names of its inputs to the names of its results.
    """
    # Operations before the groups, such as updates, or before the value of this core come first.
    node.input.extend([f"^{op_name(name)}" for name in data_inputs(node)])
    if node.name in builder.sharing.together:
        _exchange_directly(builder, node, group, combine)
    else:
        _exchange_by_queues(builder, node, group, combine)


def _exchange_directly(builder, node, group, combine):
    """The first core of a group has the nodes that compute the results of all cores."""
    dtype, controls = tf.as_dtype(node.attr["T"].type), control_inputs(node)
    first, *others = group
    names = {core: builder.free_name(f"{node.name}/received_{core}") for core in others}
    if builder.core != first:
        received = builder.on_core(first, names[builder.core])
        replace(node, "Identity", [received, *controls], T=dtype)
        return
    values = [node.input[0], *(builder.on_core(core, node.input[0]) for core in others)]
    if builder.is_switch(node.input[0]):
        values = [
            builder.add(f"{node.name}/value_{core}", "Identity", [value], T=dtype)
            for core, value in zip(group, values)
        ]
    results = combine(group, values)
    if node.name not in builder.sharing.shared:
        for core, result in zip(others, results[1:]):
            builder.add(names[core], "Identity", [result], T=dtype)
    replace(node, "Identity", [results[0], *controls], T=dtype)


def _exchange_by_queues(builder, node, group, combine):
    """The first core of a group dequeues values and enqueues results: cores take their time."""
    dtype, controls = tf.as_dtype(node.attr["T"].type), control_inputs(node)
    value = node.input[0]
    if builder.is_switch(value):
        # A control edge from a Switch is alive in both branches, an Identity in one.
        value = builder.add(f"{node.name}/value", "Identity", [value], T=dtype)
    after = [f"^{op_name(value)}"]  # places queues in the same loop

    def queue(name):
        return builder.add_queue(f"{name}/queue", f"{builder.path}{name}", [dtype], after)

    def enqueue(kind, member, tensor):
        name = f"{node.name}/{kind}_{member}"
        inputs = [queue(name), tensor]
        return builder.add(f"{name}/enqueue", "QueueEnqueueV2", inputs, Tcomponents=[dtype])

    first, *others = group
    if builder.core != first:
        sent = enqueue("sent", builder.core, value)
        inputs = [queue(f"{node.name}/received_{builder.core}"), f"^{sent}", *controls]
        replace(node, "QueueDequeueV2", inputs, component_types=[dtype])
        return
    values = [value]
    for member in others:
        name = f"{node.name}/sent_{member}"
        inputs = [queue(name)]
        values.append(
            builder.add(f"{name}/dequeue", "QueueDequeueV2", inputs, component_types=[dtype])
        )
    results = combine(group, values)
    sent = [enqueue("received", *pair) for pair in zip(others, results[1:])]
    inputs = [results[0], *(f"^{name}" for name in sent), *controls]
    replace(node, "Identity", inputs, T=dtype)


def _cross_replica_sum(builder, node):
    def add(group, values):
        attributes = {"T": tf.as_dtype(node.attr["T"].type), "N": len(values)}
        total = builder.add(f"{node.name}/add", "AddN", values, **attributes)
        return [total] * len(group)

    return _groups(builder, node), add


def _all_reduce(builder, node):
    def reduce(group, values):
        return [_reduce(builder, node, values)] * len(group)

    return _groups(builder, node), reduce


def _reduce(builder, node, values):
    """Adds nodes that reduce values of several cores; returns the name of the result."""
    reduction = node.attr["reduce_op"].s.decode()
    dtype = tf.as_dtype(node.attr["T"].type)
    total = values[0]
    for i, value in enumerate(values[1:]):
        kind = _REDUCTIONS.get(reduction, "AddV2")
        total = builder.add(f"{node.name}/reduce_{i}", kind, [total, value], T=dtype)
    if reduction == "Mean":
        after = [f"^{op_name(values[0])}"]
        count = builder.add_constant(f"{node.name}/count", len(values), dtype, after)
        total = builder.add(f"{node.name}/mean", "RealDiv", [total, count], T=dtype)
    return total


def _reduce_scatter(builder, node):
    def scatter(group, values):
        dimension = int(builder.constant(node.input[2]))
        total = _reduce(builder, node, values)
        return _split(builder, node, total, dimension, len(group), "scatter")

    return _groups(builder, node), scatter


def _all_to_all(builder, node):
    dtype = tf.as_dtype(node.attr["T"].type)
    split, concat = node.attr["split_dimension"].i, node.attr["concat_dimension"].i
    groups, count = _groups(builder, node), node.attr["split_count"].i
    if len(groups[0]) != count:
        raise _invalid(
            builder, node, f"split_count is {count}, but its groups have {len(groups[0])} cores"
        )

    def transpose(group, values):
        parts = [
            _split(builder, node, value, split, len(group), f"part_{i}")
            for i, value in enumerate(values)
        ]
        after = [f"^{op_name(values[0])}"]
        axis = builder.add_constant(f"{node.name}/concat_dimension", concat, tf.int32, after)
        attributes = {"T": dtype, "N": len(group), "Tidx": tf.int32}
        return [
            builder.add(f"{node.name}/concat_{i}", "ConcatV2", [*pieces, axis], **attributes)
            for i, pieces in enumerate(zip(*parts))
        ]

    return groups, transpose


def _split(builder, node, value, dimension, count, name):
    """Adds a split of a tensor into equal parts; returns their names."""
    after = [f"^{op_name(value)}"]
    axis = builder.add_constant(f"{node.name}/{name}/dimension", dimension, tf.int32, after)
    dtype = tf.as_dtype(node.attr["T"].type)
    split = builder.add(f"{node.name}/{name}", "Split", [axis, value], T=dtype, num_split=count)
    return [f"{split}:{i}" for i in range(count)]


def _collective_permute(builder, node):
    pairs = builder.constant(node.input[1])
    is_valid = not pairs.size or (pairs.ndim == 2 and pairs.shape[1] == 2)
    pairs = pairs.reshape([-1, 2]).tolist() if is_valid else pairs.tolist()
    cores = list(range(builder.num_cores))
    for ends in zip(*pairs) if is_valid else ():
        is_valid = is_valid and len({*ends}) == len(ends) and {*ends} <= {*cores}
    if not is_valid:
        raise _invalid(
            builder,
            node,
            f"source_target_pairs are {pairs}; write [[source, target], ...] with cores from 0 to "
            f"{builder.num_cores - 1}, each at most once as source and as target",
        )
    sources = {target: source for source, target in pairs}
    dtype = tf.as_dtype(node.attr["T"].type)

    def permute(group, values):
        value = dict(zip(group, values))
        # Cores that no core sends to get zeros.
        zeros = builder.add(f"{node.name}/zeros", "ZerosLike", [values[0]], T=dtype)
        return [value[sources[core]] if core in sources else zeros for core in group]

    return [cores], permute


def _groups(builder, node):
    """Returns the groups of a collective, lists of cores; each core is in one of them."""
    groups = builder.constant(node.input[1])
    if not groups.size:
        return [list(range(builder.num_cores))]
    if groups.ndim != 2 or sorted(groups.ravel()) != list(range(builder.num_cores)):
        raise _invalid(
            builder,
            node,
            f"group_assignment is {groups.tolist()}; each core from 0 to {builder.num_cores - 1} "
            "must be in one group",
        )
    return groups.tolist()


def static_groups(op):
    """Returns the groups of the operation of a collective; None if unknown, or for all cores."""
    if op.type == "CollectivePermute":
        return None
    return group_assignment(op) or None


def _invalid(builder, node, message):
    where = builder.user_line(node.name) or "an unknown line"
    return ValueError(f"{node.op} at {where}: {message}")


KINDS = {
    "CrossReplicaSum": _cross_replica_sum,
    "AllToAll": _all_to_all,
    "CollectivePermute": _collective_permute,
    "XlaAllReduce": _all_reduce,
    "XlaReduceScatter": _reduce_scatter,
}
