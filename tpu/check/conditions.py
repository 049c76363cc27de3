"""The conditionals and loops that an operation is inside of."""

from __future__ import annotations

from typing import NamedTuple

from tpu.check.flat_program import CONDITIONALS, LOOPS, FlatProgram, Node

_PASSING_OPS = ("Identity", "Enter")


class Condition(NamedTuple):
    """A condition that decides whether an operation runs, or how often.

    Attributes:
      predicate: the node that computes the condition.
      branch: index of the branch that contains the operation; None for a loop.
    """

    predicate: Node
    branch: int | None


def conditions_of(program: FlatProgram, node: Node) -> list[Condition]:
    """Returns the conditions of the conditionals and loops around a node, the innermost first."""
    found = []
    while node is not None:
        found += _conditions_of_nodes(program, node.source)
        call = node.caller
        if call is not None:
            found += _conditions_of_functions(program, node, call)
        node = call
    return found


def are_exclusive(program: FlatProgram, a: Node, b: Node) -> bool:
    """Returns True if two nodes are in different branches of the same condition."""
    branches = {
        condition.predicate.name: condition.branch
        for condition in conditions_of(program, a)
        if condition.branch is not None
    }
    return any(
        branches.get(condition.predicate.name, condition.branch) != condition.branch
        for condition in conditions_of(program, b)
        if condition.branch is not None
    )


def predicate_of(program: FlatProgram, merge: Node) -> Node | None:
    """Returns the node that computes the condition of a conditional, given a Merge of its results.

    None if it is unknown, as for a Merge that TensorFlow adds to compute a gradient.
    """
    if not merge.is_copy:  # of version 2
        call = merge.name.rpartition("/")[0]
        return _origin(program.operations[f"{call}/switch_0/alive"].inputs[1].op)
    around = conditions_of(program, merge)
    for branch in (tensor.op for tensor in merge.inputs):
        if branch.type == "Switch":  # a branch that returns a value from outside
            return _origin(branch.inputs[1].op)
        inside = [c for c in conditions_of(program, branch) if c not in around]
        if inside:
            return inside[0].predicate
    return None


def _conditions_of_nodes(program, op):
    """Yields the conditions of version 1 around an operation of a graph."""
    context = op._get_control_flow_context()
    while context is not None:
        is_loop = context.IsWhileContext()
        predicate = getattr(context, "pivot" if is_loop else "pred", None)
        known = program.operations.get(predicate.op.name) if predicate is not None else None
        if known is not None and known.source is predicate.op:
            yield Condition(_origin(known), None if is_loop else context.branch)
        context = context.outer_context


def _conditions_of_functions(program, node, call):
    """Yields the condition of version 2 whose function contains a node."""
    kind = call.source.type
    if kind in LOOPS:
        yield Condition(program.operations[f"{call.name}/LoopCond"], None)
    elif kind in CONDITIONALS:
        branch = node.name[len(call.name) + 1 :].split("/")[0]
        switch = program.operations[f"{call.name}/switch_{branch}/alive"]
        # The first branch of an If is for True, the first of a Case for 0.
        index = int(branch) if kind in ("Case", "StatelessCase") else 1 - int(branch)
        yield Condition(_origin(switch.inputs[1].op), index)


def _origin(node):
    while node.type in _PASSING_OPS and node.inputs:
        node = node.inputs[0].op
    return node
