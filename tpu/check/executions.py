"""How often the operations of a step run: trip counts of loops, branches of conditionals."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from tpu.graph.flat_program import FlatProgram, place_of
from tpu.graph.variables import variable_name
from tpu.graph.walks import CONTROL_FLOW

_PASSING_OPS = ("Identity", "Enter", "StopGradient", "Cast", "Squeeze", "PreventGradient")
_ARITHMETIC = {
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "RealDiv": np.divide,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Neg": np.negative,
    "NotEqual": np.not_equal,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "Ceil": np.ceil,
    "Floor": np.floor,
    "Pack": lambda *values: np.stack(values),
    "Reshape": lambda value, shape: np.reshape(value, shape),
    "Max": lambda value, axis: np.max(value),
    "Min": lambda value, axis: np.min(value),
    "Prod": lambda value, axis: np.prod(value),
    "GatherV2": lambda values, indices, axis: np.take(values, indices, int(axis)),
    "SelectV2": np.where,
}
_COMPARISONS = {
    "Less": lambda first, second: (first, second, 0),
    "LessEqual": lambda first, second: (first, second, 1),
    "Greater": lambda first, second: (second, first, 0),
    "GreaterEqual": lambda first, second: (second, first, 1),
}


class Executions:
    """Numbers of executions in one step.

    Attributes:
      unknown_loops: "file:line" or name of each loop whose trip count is unknown; counted once.
      has_conditionals: True if the step has branches of which only one runs.
    """

    def __init__(self, program: FlatProgram):
        self._program, self._known, self._times, self._trip_counts = program, {}, {}, {}
        self.unknown_loops: list[str] = []
        self._analysis = program.analysis
        for op, frame in self._analysis.frame.items():
            self._times[op] = math.prod(self._trips(loop) or 1 for loop in frame)
        for loop, op in self._analysis.loops.items():
            if self._trips(loop) is None:
                self.unknown_loops.append(place_of(op) or op.name)
        self.has_conditionals = any(self._analysis.conditions.values())

    def times(self, op) -> int:
        """Returns how often an operation runs if its branch is taken."""
        return self._times.get(op, 1)

    def total(self, costs: dict) -> float:
        """Adds up `{operation: cost of an execution}`; of conditionals only the costlier branch."""
        entries = [
            (cost * self.times(op), self._analysis.conditions.get(op, frozenset()))
            for op, cost in costs.items()
        ]
        return _costliest(entries)

    # ---- Trip counts ----

    def _trips(self, frame):
        """Returns the trip count of a loop: at most, if it may end earlier; None if unknown."""
        if frame not in self._trip_counts:
            self._trip_counts[frame] = None  # for what depends on itself
            condition = self._analysis.loops.get(frame)
            if condition is not None:
                try:
                    self._trip_counts[frame] = self._bound(condition.inputs[0])
                except RecursionError:
                    self._known.clear()
        return self._trip_counts[frame]

    def _bound(self, predicate):
        """Returns how often a predicate of a loop is True, at most; None if unknown."""
        op = _through(predicate, _PASSING_OPS).op
        if op.type == "LogicalAnd":
            bounds = [self._bound(value) for value in op.inputs]
            return min((bound for bound in bounds if bound is not None), default=None)
        if op.type not in _COMPARISONS:
            return None
        low, high, is_inclusive = _COMPARISONS[op.type](*op.inputs)
        for counter, limit, sign in ((low, high, 1), (high, low, -1)):
            induction, end = self._induction(counter), self.value(limit)
            if induction is None or end is None or np.size(end) != 1:
                continue
            start, step = induction
            if sign * step > 0:
                distance = sign * (float(np.reshape(end, ())) - start)
                trips = distance / abs(step)
                if not math.isfinite(trips):  # a limit of infinity
                    continue
                return max(0, math.floor(trips) + 1 if is_inclusive else math.ceil(trips))
        return None

    def _induction(self, value):
        """Returns (first value, step) of a counter of a loop; None if it is none."""
        merge = _through(value, ("Identity", "Switch", "Cast"))
        if merge.op.type != "Merge" or len(merge.op.inputs) != 2:
            return None
        start, following = merge.op.inputs
        if following.op.type != "NextIteration":
            return None
        update = _through(following.op.inputs[0], ("Identity",)).op
        if update.type not in ("Add", "AddV2", "Sub"):
            return None
        first, second = update.inputs
        if update.type != "Sub" and self._is_merge(second, merge.op):
            first, second = second, first
        start, step = self.value(start), self.value(second)
        if not self._is_merge(first, merge.op) or start is None or step is None:
            return None
        if np.size(start) != 1 or np.size(step) != 1:
            return None
        sign = -1 if update.type == "Sub" else 1
        return float(np.reshape(start, ())), sign * float(np.reshape(step, ()))

    def _is_merge(self, value, merge):
        return _through(value, ("Identity", "Switch")).op is merge

    # ---- Static values ----

    def value(self, value) -> np.ndarray | None:
        """Returns the static value of a tensor of the program; None if unknown."""
        key = (value.op, value.value_index)
        if key not in self._known:
            self._known[key] = None  # for what depends on itself
            self._known[key] = self._compute(value)
        return self._known[key]

    def _compute(self, value):
        op = value.op
        if isinstance(op, tf.Operation):  # outside of the step
            return tf.get_static_value(value)
        if op.type == "Const" and op.is_copy:
            return tf.make_ndarray(op.get_attr("value"))
        if op.type in ("Shape", "Size", "Rank"):
            return _shape_value(op)
        if op.type in _PASSING_OPS or (op.type == "Switch" and op.inputs):
            return self.value(op.inputs[0])
        if op.type == "Merge":
            return self._invariant(op)
        if op.type == "Exit":
            return self._final(op)
        if op.type == "TensorArraySizeV3":
            array = _through(op.inputs[0], ("Identity", "Enter", "Switch", "Merge", "Exit"))
            return self.value(array.op.inputs[0]) if array.op.type == "TensorArrayV3" else None
        if op.type == "StridedSlice":
            return self._slice(op)
        if op.type == "StackPopV2":
            return self._common(self._program.pushes.get(variable_name(op), ()))
        if op.type == "TensorListPopBack":
            return self._common(_pushes_of_list(op.inputs[0]))
        compute = _ARITHMETIC.get(op.type)
        if compute is None or not all(
            getattr(t.dtype, "is_numpy_compatible", 1) for t in op.inputs
        ):
            return None
        values = [self.value(tensor) for tensor in op.inputs]
        if any(v is None for v in values):
            return None
        try:
            return np.asarray(compute(*values))
        except (ValueError, TypeError, IndexError, ZeroDivisionError):
            return None

    def _common(self, pushes):
        """Returns the value that all these operations store; None if it is not the same."""
        values = [self.value(push.inputs[1]) for push in pushes]
        is_same = values and all(v is not None and np.array_equal(v, values[0]) for v in values)
        return values[0] if is_same else None

    def _slice(self, op):
        values = [self.value(tensor) for tensor in op.inputs]
        masks = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
        begin, end, ellipsis, new_axis, shrink = (op.get_attr(name) for name in masks)
        if any(v is None for v in values) or ellipsis or new_axis or len(values[1]) != 1:
            return None
        array, (first,), (last,), (step,) = values
        if np.ndim(array) != 1:
            return None
        if shrink & 1:
            return array[first]
        return array[None if begin & 1 else first : None if end & 1 else last : step]

    def _invariant(self, merge):
        """Returns the value of a variable of a loop that does not change."""
        if len(merge.inputs) != 2 or merge.inputs[1].op.type != "NextIteration":
            return None
        following = merge.inputs[1].op.inputs[0]
        return self.value(merge.inputs[0]) if self._is_merge(following, merge) else None

    def _final(self, op):
        """Returns the value of a variable of a loop after the loop."""
        merge = _through(op.inputs[0], ("Identity", "Switch"))
        if merge.op.type != "Merge":
            return None
        value = self._invariant(merge.op)
        if value is not None:
            return value
        induction = self._induction(merge)
        frame = self._analysis.frame.get(merge.op)
        trips = self._trips(frame[-1]) if frame else None
        if induction is None or trips is None:
            return None
        return np.asarray(induction[0] + induction[1] * trips)


def _shape_value(op):
    shape = op.inputs[0].shape
    if op.type == "Rank":
        return None if shape.rank is None else np.asarray(shape.rank)
    if op.type == "Size":
        return None if shape.num_elements() is None else np.asarray(shape.num_elements())
    return None if not shape.is_fully_defined() else np.asarray(shape.as_list())


def _pushes_of_list(value):
    """Returns the operations that append to a list before it is read."""
    found, seen, pending = [], set(), [value.op]
    while pending:
        op = pending.pop()
        if op in seen or isinstance(op, tf.Operation):
            continue
        seen.add(op)
        if op.type == "TensorListPushBack":
            found.append(op)
        elif op.type in ("TensorListPopBack", *_PASSING_OPS, *CONTROL_FLOW):
            pending += [tensor.op for tensor in op.inputs]
    return found


def _through(value, kinds):
    """Returns the tensor that operations of these types pass on."""
    while value.op.type in kinds and not isinstance(value.op, tf.Operation):
        value = value.op.inputs[0]
    return value


def _costliest(entries):
    """Adds up costs, [(cost, frozenset of (predicate, branch))], of the costliest branches."""
    counts = {}
    for _, conditions in entries:
        for predicate, _ in conditions:
            counts[predicate] = counts.get(predicate, 0) + 1
    if not counts:
        return sum(cost for cost, _ in entries)
    # Outer conditionals have more operations than those inside.
    outermost = max(counts, key=counts.get)
    always, branches = [], {}
    for cost, conditions in entries:
        here = [branch for predicate, branch in conditions if predicate == outermost]
        if here:
            rest = frozenset(c for c in conditions if c[0] != outermost)
            branches.setdefault(here[0], []).append((cost, rest))
        else:
            always.append((cost, conditions))
    return _costliest(always) + max(map(_costliest, branches.values()))
