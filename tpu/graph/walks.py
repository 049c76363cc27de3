"""Walks over operations: what they depend on, what depends on them, and in which order they run.

Operations and tensors are those of TensorFlow, or the nodes and values of a `flat_program`.
"""

from __future__ import annotations

import heapq

import tensorflow as tf

# Operations of version 1 control flow that pass a value on.
CONTROL_FLOW = ("Enter", "Exit", "Merge", "NextIteration", "Switch")


def kind_of(op: tf.Operation) -> str:
    """Returns the type of a control flow operation, such as Switch for a RefSwitch."""
    kind = op.type
    return kind[3:] if kind.startswith("Ref") else kind


def root(tensor: tf.Tensor, kinds=("Enter", "Identity")) -> tf.Tensor:
    """Returns the tensor that operations of some kinds pass on, each its first input."""
    while kind_of(tensor.op) in kinds and tensor.op.inputs:
        tensor = tensor.op.inputs[0]
    return tensor


def value_parents(op: tf.Operation) -> list[tf.Operation]:
    """Returns the operations that have the inputs of an operation as outputs."""
    return [tensor.op for tensor in op.inputs]


def parents_of(op: tf.Operation) -> list[tf.Operation]:
    """Returns the operations that an operation depends on directly."""
    return [*value_parents(op), *op.control_inputs]


def readers_of(op: tf.Operation) -> list[tf.Operation]:
    """Returns the operations that have outputs of an operation as inputs."""
    return [reader for tensor in op.outputs for reader in tensor.consumers()]


def ancestors(operations, parents=parents_of) -> dict[str, tf.Operation]:
    """Returns `{name: operation}` of `operations` and of all that they depend on.

    Args:
      operations: operations; None is ignored.
      parents: function from an operation to the operations to visit from there; `readers_of` finds
        the descendants instead.
    """
    found, pending = {}, [op for op in operations if op is not None]
    while pending:
        op = pending.pop()
        if op.name not in found:
            found[op.name] = op
            pending += parents(op)
    return found


def topological_order(inputs: dict, priority: dict) -> list:
    """Returns the keys of `inputs` in topological order, those with low priority values first.

    Args:
      inputs: `{key: set of the keys it depends on}`.
      priority: `{key: number}`, different for each key.

    Returns:
      Keys. Those on a cycle, and those that depend on them, are missing.
    """
    missing = {key: len(before) for key, before in inputs.items()}
    consumers = {}
    for key, before in inputs.items():
        for item in before:
            consumers.setdefault(item, []).append(key)
    ready = [(priority[key], i, key) for i, (key, count) in enumerate(missing.items()) if not count]
    heapq.heapify(ready)
    order, index = [], len(ready) + len(missing)
    while ready:
        key = heapq.heappop(ready)[-1]
        order.append(key)
        for consumer in consumers.get(key, ()):
            missing[consumer] -= 1
            if not missing[consumer]:
                index += 1
                heapq.heappush(ready, (priority[consumer], index, consumer))
    return order
