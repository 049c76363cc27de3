"""Orders the reads and writes of each variable within a step, as a compiled step does.

TensorFlow runs operations without a path between them in any order: a learning rate that reads
global_step may see the step before or after its update. `order_accesses` returns control edges that
fix the order: that of the graph, and where it leaves a choice, the order of creation.

A control edge between the bodies of loops and conditionals of version 1 would be invalid or kill
its target, so an edge into a loop goes to the Enter of the variable, an edge out of a loop comes
from all Exits, and an edge out of a branch comes from a Merge with the other branch.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.ops import control_flow_util, gen_control_flow_ops

from tpu.graph import variables
from tpu.graph.control_flow import GraphAnalysis
from tpu.graph.walks import kind_of, topological_order


def add_edges(operations, sequential_loops: bool = False) -> list[tf.Operation]:
    """Adds the control edges of `order_accesses` to the graph.

    Returns:
      `operations`, and the operations that were added to the graph.
    """
    operations = list(operations)
    if not operations:
        return operations
    graph = operations[0].graph
    before = len(graph.get_operations())
    controls = {}
    for first, later in order_accesses(operations, sequential_loops):
        controls.setdefault(later, []).append(first)
    for later, inputs in controls.items():
        later._add_control_inputs(inputs)
    return operations + graph.get_operations()[before:]


def order_accesses(
    operations, sequential_loops: bool = False
) -> list[tuple[tf.Operation, tf.Operation]]:
    """Returns control edges that order all accesses to each variable.

    Reads may run in any order between two writes. Conditionals and loops of version 1 may need
    further operations, which this function adds to the graph.

    Args:
      operations: all operations of a graph, or of the part of it that runs.
      sequential_loops: True if an iteration of a loop starts when the one before has ended.

    Returns:
      [(first, later)]: `first` must be a control input of `later`.
    """
    analysis = GraphAnalysis(operations)
    origins = variables.Origins()
    accesses = variables.accesses(analysis, origins)
    accesses = {key: ops for key, ops in accesses.items() if any(write for _, write in ops)}
    frames = {analysis.frame[op] for ops in accesses.values() for op, _ in ops}
    levels = {frame[:size] for frame in frames for size in range(len(frame) + 1)}
    edges = _Edges(analysis, origins)
    for level in sorted(levels):
        positions = _positions(analysis, level, frames)
        for variable, ops in accesses.items():
            units = _units(analysis, level, ops)
            _order(edges, level, variable, sorted(units.items(), key=lambda u: positions[u[0]]))
            if level and not sequential_loops:
                edges.end_iteration(level, units)
    return edges.found


def _positions(analysis, level, frames):
    """Returns `{operation, or loop: position}` of a frame; a loop is the name of its frame."""
    if not any(_loop(frame, level) for frame in frames):
        return analysis.position
    inputs, first = {}, {}
    unit = {
        op: _loop(frame, level) or op
        for op, frame in analysis.frame.items()
        if frame[: len(level)] == level
    }
    for op, key in unit.items():
        before = {unit[item] for item in analysis.inputs[op] if item in unit}
        inputs.setdefault(key, set()).update(before - {key})
        first[key] = min(first.get(key, op._id), op._id)
    return {key: i for i, key in enumerate(topological_order(inputs, first))}


def _units(analysis, level, accesses):
    """Returns `{operation, or loop: whether it writes}` of the accesses in a frame."""
    units = {}
    for op, is_write in accesses:
        frame = analysis.frame[op]
        if frame[: len(level)] == level:
            unit = _loop(frame, level) or op
            units[unit] = units.get(unit, False) or is_write
    return units


def _loop(frame, level):
    """Returns the frame of the loop in `level` that holds `frame`; None if there is none."""
    is_inside = len(frame) > len(level) and frame[: len(level)] == level
    return frame[: len(level) + 1] if is_inside else None


def _order(edges, level, variable, accesses):
    """Adds edges between the accesses of a variable, [(unit, whether it writes)]."""
    before = []
    for unit, is_write in accesses:
        for other, other_writes in before:
            if is_write or other_writes:
                edges.add(level, variable, other, unit)
        # What runs only together with this write needs no further edges. The Exits of a loop
        # without iterations may not depend on what the loop waits for.
        if is_write and isinstance(unit, tf.Operation):
            own = edges.conditions(unit)
            before = [other for other in before if not own <= edges.conditions(other[0])]
        before.append((unit, is_write))


class _Edges:
    """Collects control edges.

    Attributes:
      found: [(first, later)].
    """

    def __init__(self, analysis, origins):
        self.found = []
        self._origins = origins
        self._analysis = analysis
        self._merges = {}
        self._enters, self._exits, self._next = {}, {}, {}
        for op in analysis.operations:
            kind, frame = kind_of(op), analysis.frame[op]
            if kind == "Enter":
                self._enters.setdefault(analysis.frame_after(op), []).append(op)
            elif kind in ("Exit", "NextIteration"):
                found = self._exits if kind == "Exit" else self._next
                found.setdefault(frame, []).append(op)

    def conditions(self, unit):
        """Returns the conditions under which an operation or a loop runs."""
        ends = self._ends(unit)
        return self._analysis.conditions[ends[0]] if ends else frozenset()

    def add(self, level, variable, first, later):
        """Adds edges between two accesses, each an operation or a loop."""
        for target in self._starts(variable, later):
            conditions = self._analysis.conditions[target]
            for source in self._ends(first):
                source = self._alive(source, conditions, level)
                if source is not None:
                    self.found.append((source, target))

    def end_iteration(self, level, units):
        """Ends the accesses of an iteration of a loop before the next iteration."""
        for target in self._next.get(level, ()) if any(units.values()) else ():
            conditions = self._analysis.conditions[target]
            for source in (end for unit in units for end in self._ends(unit)):
                source = self._alive(source, conditions, level)
                if source is not None:
                    self.found.append((source, target))

    def _starts(self, variable, unit):
        if isinstance(unit, tf.Operation):
            return [unit]
        enters = self._enters[unit]
        of_variable = [op for op in enters if variable in self._origins.find(op.inputs[0])]
        return of_variable or enters

    def _ends(self, unit):
        return [unit] if isinstance(unit, tf.Operation) else self._exits.get(unit, [])

    def _alive(self, op, conditions, level):
        """Returns an operation after `op` that is alive under `conditions`; None if none is."""
        own = self._analysis.conditions[op]
        if any((predicate, 1 - branch) in conditions for predicate, branch in own):
            return None  # never in the same step
        missing = own - conditions
        branches = [(self._analysis.find_switch(key, level), branch) for key, branch in missing]
        if any(switch is None for switch, _ in branches):
            return None
        # Innermost first: the predicate of an inner conditional may be dead.
        branches.sort(key=lambda b: (-len(self._analysis.conditions[b[0]]), b[0]._id))
        for switch, branch in branches:
            key = (op, switch, branch)
            if key not in self._merges:
                self._merges[key] = _merge_branches(op, switch.inputs[1], branch)
            op = self._merges[key]
        return op


def _merge_branches(op, predicate, branch):
    """Returns a Merge after `op`, which runs only if `predicate` is `branch`."""
    graph = op.graph
    with graph.as_default(), graph.name_scope("order"), graph.control_dependencies(None):
        # The loop around the conditional, or what surrounds all loops.
        context = control_flow_util.GetOutputContext(op)
        while context is not None and context.IsCondContext():
            context = context.outer_context
        graph._set_control_flow_context(context)
        branches = gen_control_flow_ops.switch(predicate, predicate)
        ends = [tf.identity(output) for output in branches]
        ends[branch].op._add_control_input(op)
        return gen_control_flow_ops.merge(ends).output.op
