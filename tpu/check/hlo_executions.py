"""How often the instructions of an HLO program run: trip counts of loops, costliest branches."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

_MAX_TRIPS = 2**31
_PASSING_OPCODES = ("copy", "bitcast", "reshape", "convert", "copy-start", "copy-done")
_ARITHMETIC = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "maximum": max,
    "minimum": min,
    "negate": operator.neg,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "NE": operator.ne,
    "EQ": operator.eq,
}


class _Scope(NamedTuple):
    """A computation, and what is known of its parameters.

    Attributes:
      computation_id: the computation.
      arguments: `{number of a parameter: its value}`.
      elements: `{index: value}` of its only parameter, a tuple; None if that is unknown.
      loop: the loop whose body or condition it is.
      outer: the scope around the loop.
      iteration: of the loop; None for any.
    """

    computation_id: int
    arguments: Mapping[int, float] = MappingProxyType({})
    elements: Mapping[int, float] | None = None
    loop: hlo_pb2.HloInstructionProto | None = None
    outer: _Scope | None = None
    iteration: int | None = None


class Step:
    """The instructions of a program that run, and how often.

    Attributes:
      unknown_loops: the loops whose trip count is unknown; their bodies are counted once.
      skipped_branches: number of branches that are not counted because another one costs more.
    """

    def __init__(self, module, cost_of):
        """Reads a HloModuleProto; `cost_of(instruction)` is the cost of one execution."""
        self._module, self._cost_of = module, cost_of
        self._computations = {computation.id: computation for computation in module.computations}
        self._instructions = {
            computation.id: {i.id: i for i in computation.instructions}
            for computation in module.computations
        }
        self.unknown_loops, self.skipped_branches = [], 0

    def executed(self):
        """Returns [(instruction, executions per step)]; of a conditional, its costliest branch."""
        return self._executed(_Scope(self._module.entry_computation_id))

    def _executed(self, scope, times=1):
        found = []
        for instruction in self._computations[scope.computation_id].instructions:
            found.append((instruction, times))
            called = instruction.called_computation_ids
            if instruction.opcode == "while":
                body, _ = self._body_and_condition(instruction)
                trips = self._trip_count(instruction, scope)
                if trips is None:
                    self.unknown_loops.append(instruction)
                inside = _Scope(body.id, loop=instruction, outer=scope)
                found += self._executed(inside, times * (1 if trips is None else trips))
            elif instruction.opcode == "conditional":
                branches = [self._executed(_Scope(i), times) for i in dict.fromkeys(called)]
                self.skipped_branches += len(branches) - 1
                found += max(branches, key=self._total_cost)
            elif instruction.opcode == "call":
                found += self._executed(_Scope(called[0]), times)
        return found

    def _total_cost(self, executed):
        return sum(times * self._cost_of(instruction) for instruction, times in executed)

    # ---- Trip counts ----

    def _root(self, computation_id):
        return self._instructions[computation_id][self._computations[computation_id].root_id]

    def _operands(self, instruction, scope):
        return [self._instructions[scope.computation_id][i] for i in instruction.operand_ids]

    def _body_and_condition(self, loop):
        first, second = (self._computations[i] for i in loop.called_computation_ids)
        return (first, second) if _is_condition(second) else (second, first)

    def _trip_count(self, loop, scope):
        """Returns how often the condition of a loop holds, at most; None if unknown."""
        _, condition = self._body_and_condition(loop)
        root = self._root(condition.id)
        inside = _Scope(condition.id, loop=loop, outer=scope)

        def holds(iteration):
            return self._value(root, inside._replace(iteration=iteration))

        if holds(0) is None or (holds(0) and holds(_MAX_TRIPS) is not False):
            return None
        first, last = -1, _MAX_TRIPS  # the condition holds up to an iteration
        while last - first > 1:
            middle = (first + last) // 2
            first, last = (middle, last) if holds(middle) else (first, middle)
        return last

    def _value(self, instruction, scope):
        """Returns the number that an instruction computes in a scope; None if unknown."""
        opcode, operands = instruction.opcode, self._operands(instruction, scope)
        if opcode == "constant":
            return _constant(instruction)
        if opcode == "parameter":
            return scope.arguments.get(instruction.parameter_number)
        if opcode == "get-tuple-element":
            return self._element(operands[0], instruction.tuple_index, scope)
        if opcode in _PASSING_OPCODES:
            return self._value(operands[0], scope)
        if opcode == "dynamic-slice":
            return self._stored(operands[0], scope)
        if opcode == "fusion":
            values = {i: self._value(operand, scope) for i, operand in enumerate(operands)}
            called = instruction.called_computation_ids[0]
            return self._value(self._root(called), _Scope(called, arguments=values))
        values = [self._value(operand, scope) for operand in operands]
        if opcode == "and" and False in values:
            return False
        if opcode == "and":  # an unknown condition may end the loop earlier
            return next((value for value in values if value is not None), None)
        name = instruction.comparison_direction if opcode == "compare" else opcode
        if None in values or name not in _ARITHMETIC:
            return None
        return _ARITHMETIC[name](*values)

    def _element(self, source, index, scope):
        """Returns an element of a tuple as a number; None if unknown."""
        operands = self._operands(source, scope)
        if source.opcode == "tuple":
            return self._value(operands[index], scope)
        if source.opcode in (*_PASSING_OPCODES, "opt-barrier"):
            return self._element(operands[0], index, scope)
        if source.opcode == "parameter" and scope.elements is not None:
            return scope.elements.get(index)
        if source.opcode == "parameter" and scope.loop is not None:
            return self._state(scope.loop, index, scope.outer, scope.iteration)
        if source.opcode == "while":
            return self._state(source, index, scope, "last")
        return None

    def _state(self, loop, index, outer, iteration):
        """Returns a variable of a loop before an iteration, or after the "last"; None if unknown.

        `outer` is the scope around the loop; `iteration` is None for any.
        """
        step = self._step_of(loop, index)
        if step is None or (step and iteration is None):
            return None
        (initial,) = self._operands(loop, outer)
        start = self._element(initial, index, outer)
        if iteration == "last" and step:
            iteration = self._trip_count(loop, outer)
        if start is None or (step and iteration is None):
            return None
        return start + step * iteration if step else start

    def _stored(self, array, scope):
        """Returns the number that each iteration of a loop stores in an array; None if unknown.

        The trip counts of an inner loop are stored for the gradient of the outer one.
        """
        operands = self._operands(array, scope)
        if array.opcode == "dynamic-update-slice":
            return self._value(operands[1], scope)
        if array.opcode in _PASSING_OPCODES:
            return self._stored(operands[0], scope)
        if array.opcode != "get-tuple-element":
            return None
        source, index = operands[0], array.tuple_index
        if source.opcode == "tuple":
            return self._stored(self._operands(source, scope)[index], scope)
        if source.opcode == "parameter" and scope.loop is not None:
            return self._stored_by(scope.loop, index, scope.outer)
        return self._stored_by(source, index, scope) if source.opcode == "while" else None

    def _stored_by(self, loop, index, outer):
        """Returns the number that the iterations of a loop store in a variable, an array."""
        body, _ = self._body_and_condition(loop)
        root = self._root(body.id)
        if root.opcode != "tuple":
            return None
        last = self._instructions[body.id][root.operand_ids[index]]
        if last.opcode != "get-tuple-element":
            return self._stored(last, _Scope(body.id, loop=loop, outer=outer))
        (initial,) = self._operands(loop, outer)
        is_same = last.tuple_index == index
        if not is_same or initial.opcode != "tuple":
            return None
        return self._stored(self._operands(initial, outer)[index], outer)

    def _step_of(self, loop, index):
        """Returns by how much an iteration increases a variable; None if not by a constant."""
        body, _ = self._body_and_condition(loop)
        root = self._root(body.id)
        results = [
            self._element(root, index, _Scope(body.id, elements={index: start}))
            for start in (0, 1000)
        ]
        if None in results or results[1] - results[0] != 1000:
            return None
        return results[0]


def _is_condition(computation):
    (root,) = [i for i in computation.instructions if i.id == computation.root_id]
    return root.shape.element_type == xla_data_pb2.PRED and not root.shape.tuple_shapes


def _constant(instruction):
    """Returns the value of a constant of one integer or predicate; None for others."""
    literal = instruction.literal
    for values in (literal.s32s, literal.s64s, literal.u32s, literal.u64s, literal.preds):
        if len(values) == 1:
            return values[0]
    return None
