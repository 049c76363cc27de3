"""Where operations of a graph run: in which loop, and in which branches of conditionals.

Loops and conditionals of version 1 consist of nodes: Enter and Exit bound the frame of a loop,
Switch and Merge the branches of a conditional. Operations in the branch that is not taken are dead,
and so is every operation that depends on a dead one, up to a Merge.
"""

from __future__ import annotations

import heapq

import tensorflow as tf


class GraphAnalysis:
    """Order, frames and conditions of operations.

    Attributes:
      operations: in topological order; those without a path between them in order of creation.
      position: `{operation: index in operations}`.
      inputs: `{operation: operations it depends on}`, without the back edges of loops.
      frame: `{operation: names of the loops around it, outermost first}`. An Enter runs in the
        frame around its loop, an Exit in its loop.
      conditions: `{operation: {(name of a predicate, branch)}}` under which it is alive.
    """

    def __init__(self, operations):
        operations = list(operations)
        known = set(operations)
        self.inputs = {op: _inputs(op) & known for op in operations}
        self.operations = topological_order(self.inputs, {op: op._id for op in operations})
        self.position = {op: i for i, op in enumerate(self.operations)}
        self.frame, self.conditions = {}, {}
        self._switches = {}
        for op in self.operations:
            self.frame[op] = self._find_frame(op)
            self.conditions[op] = self._find_conditions(op)

    def find_switch(self, predicate, frame):
        """Returns a Switch of a predicate in a frame, or None."""
        return self._switches.get((predicate, frame))

    def _find_frame(self, op):
        frames = [self.frame_after(i) for i in self.inputs[op] if i in self.frame]
        return max(frames, key=len, default=())

    def frame_after(self, op):
        """Returns the frame of the outputs of an operation."""
        kind = kind_of(op)
        if kind == "Enter":
            return (*self.frame[op], op.get_attr("frame_name").decode())
        return self.frame[op][:-1] if kind == "Exit" else self.frame[op]

    def _find_conditions(self, op):
        conditions = [self._conditions_after(tensor) for tensor in op.inputs]
        if kind_of(op) == "Merge":
            first, *others = [c for c in conditions if c is not None] or [frozenset()]
            return first.intersection(*others)
        conditions = [c for c in conditions if c is not None]
        conditions += [self.conditions[i] for i in op.control_inputs if i in self.conditions]
        result = frozenset().union(*conditions)
        if kind_of(op) == "Switch":
            predicate = root(op.inputs[1])
            if predicate.op.type != "LoopCond":
                self._switches.setdefault((predicate.name, self.frame[op]), op)
        return result

    def _conditions_after(self, tensor):
        """Returns the conditions of a tensor; None for a back edge or an operation outside."""
        op = tensor.op
        if op not in self.conditions:
            return None
        if kind_of(op) != "Switch":
            return self.conditions[op]
        predicate = root(op.inputs[1])
        if predicate.op.type == "LoopCond":
            return self.conditions[op]
        return self.conditions[op] | {(predicate.name, tensor.value_index)}


def parents_of(op: tf.Operation) -> list[tf.Operation]:
    """Returns the operations that an operation depends on directly."""
    return [*(tensor.op for tensor in op.inputs), *op.control_inputs]


def ancestors(operations, parents=parents_of) -> dict[str, tf.Operation]:
    """Returns `{name: operation}` of `operations` and of all that they depend on.

    Args:
      operations: operations; None is ignored.
      parents: function from an operation to the operations that it depends on directly.
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


def kind_of(op: tf.Operation) -> str:
    """Returns the type of a control flow operation, such as Switch for a RefSwitch."""
    kind = op.type
    return kind[3:] if kind.startswith("Ref") else kind


def root(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor that Enters and Identities pass on."""
    while kind_of(tensor.op) in ("Enter", "Identity"):
        tensor = tensor.op.inputs[0]
    return tensor


def _inputs(op):
    before = {tensor.op for tensor in op.inputs}
    if kind_of(op) == "Merge":
        before = {item for item in before if kind_of(item) != "NextIteration"}
    return before.union(op.control_inputs)


def free_name(name: str, taken) -> str:
    """Returns the name, with underscores at its end if `taken` contains it."""
    while name in taken:
        name += "_"
    return name
