"""Where operations of a graph run: in which loop, and in which branches of conditionals.

Loops and conditionals of version 1 consist of nodes: Enter and Exit bound the frame of a loop,
Switch and Merge the branches of a conditional. Operations in the branch that is not taken are dead,
and so is every operation that depends on a dead one, up to a Merge.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tpu.graph.walks import kind_of, root, topological_order, value_parents


class Condition(NamedTuple):
    """A condition that decides whether an operation runs, or how often.

    Attributes:
      predicate: the operation that computes the condition.
      branch: index of the branch that contains the operation; None for a loop.
    """

    predicate: tf.Operation
    branch: int | None


class GraphAnalysis:
    """Order, frames and conditions of operations.

    Attributes:
      operations: in topological order; those without a path between them in order of creation.
      position: `{operation: index in operations}`.
      inputs: `{operation: operations it depends on}`, without the back edges of loops.
      frame: `{operation: names of the loops around it, outermost first}`. An Enter runs in the
        frame around its loop, an Exit in its loop.
      conditions: `{operation: {(name of a predicate, branch)}}` under which it is alive.
      loops: `{name of a loop: its LoopCond}`.
    """

    def __init__(self, operations):
        operations = list(operations)
        known = set(operations)
        self.inputs = {op: _inputs(op) & known for op in operations}
        self.operations = topological_order(self.inputs, {op: op._id for op in operations})
        self.position = {op: i for i, op in enumerate(self.operations)}
        self.frame, self.conditions, self.loops = {}, {}, {}
        self._switches, self._predicates = {}, {}
        for op in self.operations:
            self.frame[op] = self._find_frame(op)
            self.conditions[op] = self._find_conditions(op)
            if op.type == "LoopCond" and self.frame[op]:
                self.loops[self.frame[op][-1]] = op

    def conditions_of(self, op) -> list[Condition]:
        """Returns the conditions of the conditionals and loops around an operation.

        The latest predicate first, without those whose predicate is none of the operations.
        """
        loops = (self.loops.get(name) for name in self.frame.get(op, ()))
        found = [Condition(condition, None) for condition in loops if condition is not None]
        found += [
            Condition(self._predicates[name], branch)
            for name, branch in self.conditions.get(op, ())
            if self._predicates[name] in self.position
        ]
        return sorted(found, key=lambda condition: -self.position[condition.predicate])

    def predicate_of(self, merge):
        """Returns the operation of the condition of a conditional, given a Merge of its results.

        None if it is unknown, as for a Merge that TensorFlow adds to compute a gradient.
        """
        own = self.conditions.get(merge, frozenset())
        inside = [(self._conditions_after(tensor) or frozenset()) - own for tensor in merge.inputs]
        found = {self._predicates[name] for conditions in inside for name, _ in conditions}
        return max(found, key=lambda op: self.position.get(op, -1), default=None)

    def are_exclusive(self, a, b) -> bool:
        """Returns True if two operations are in different branches of the same condition."""
        branches = dict(self.conditions.get(a, ()))
        others = self.conditions.get(b, ())
        return any(branches.get(name, branch) != branch for name, branch in others)

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
                self._predicates[predicate.name] = predicate.op
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


def _inputs(op):
    before = set(value_parents(op))
    if kind_of(op) == "Merge":
        before = {item for item in before if kind_of(item) != "NextIteration"}
    return before.union(op.control_inputs)
