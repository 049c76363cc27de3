"""Bytes of memory that an instruction of an optimized TPU program reads and writes.

For instructions that the compiler gives no cycles, which mostly move data. What is in the vector
memory of a core costs nothing, as do copies that run beside other instructions.
"""

from __future__ import annotations

import functools
import math

from tensorflow.compiler.xla import xla_data_pb2

_BITS = {
    **dict.fromkeys(("PRED", "S8", "U8"), 8),
    **dict.fromkeys(("S16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("S32", "U32", "F32"), 32),
    **dict.fromkeys(("S64", "U64", "F64", "C64"), 64),
    "C128": 128,
}
_NAMES = dict(zip(xla_data_pb2.PrimitiveType.values(), xla_data_pb2.PrimitiveType.keys()))
# They compute nothing, wait, or are counted by what they call.
_FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier",
    "while", "conditional", "call", "partition-id", "replica-id", "copy-start", "copy-done",
    "all-reduce-start", "all-reduce-done", "async-start", "async-update", "async-done", "domain",
    "infeed", "outfeed", "send", "send-done", "recv", "recv-done",
}  # fmt: skip
_SLICING = ("dynamic-slice", "slice", "gather")


class Traffic:
    """The bytes of the instructions of a program."""

    def __init__(self, module):
        """Takes an optimized HloModuleProto."""
        self._instructions = {i.id: i for c in module.computations for i in c.instructions}
        self._computations = {c.id: c for c in module.computations}

    def num_bytes(self, instruction) -> int:
        """Returns the bytes that an execution of an instruction reads and writes."""
        opcode = instruction.opcode
        if opcode in _FREE:
            return 0
        if opcode == "fusion":
            return self._of_fusion(instruction)
        return self._written(instruction) + sum(
            self._read(instruction, place) for place in range(len(instruction.operand_ids))
        )

    def _of_fusion(self, instruction):
        """A fusion reads of an operand only the parts that it slices."""
        fused = self._computations[instruction.called_computation_ids[0]]
        readers: dict[int, list] = {}
        for inner in fused.instructions:
            for place, operand in enumerate(inner.operand_ids):
                readers.setdefault(operand, []).append((inner, place))
        total = 0
        for inner in fused.instructions:
            if inner.opcode != "parameter":
                continue
            operand = self._instructions[instruction.operand_ids[inner.parameter_number]]
            parts = [
                self._read(reader, place) if _is_partial(reader, place) else math.inf
                for reader, place in readers.get(inner.id, ())
            ]
            total += min(_bytes_of(operand.shape), sum(parts))
        root = self._instructions[fused.root_id]
        roots = (
            [self._instructions[i] for i in root.operand_ids] if root.opcode == "tuple" else [root]
        )
        written = sum(map(self._written, roots))
        return total + min(written, _bytes_of(instruction.shape))

    def _written(self, instruction):
        if instruction.opcode == "dynamic-update-slice":  # in place
            return _bytes_of(self._instructions[instruction.operand_ids[1]].shape)
        if instruction.opcode == "scatter":
            return _bytes_of(self._instructions[instruction.operand_ids[-1]].shape)
        return _bytes_of(instruction.shape)

    def _read(self, instruction, place):
        """Returns the bytes that an instruction reads of an operand."""
        if _is_partial(instruction, place):
            return self._written(instruction)
        return _bytes_of(self._instructions[instruction.operand_ids[place]].shape)


def _is_partial(instruction, place):
    """Whether an instruction reads a part of an operand, of the size of what it writes."""
    return place == 0 and instruction.opcode in (*_SLICING, "dynamic-update-slice", "scatter")


def all_reduce_bytes(instruction) -> int:
    """Returns the bytes that an instruction sums up over the cores, without padding; else 0."""
    if instruction.opcode not in ("all-reduce", "all-reduce-start"):
        return 0
    shapes = instruction.shape.tuple_shapes or [instruction.shape]
    return sum(math.prod(s.dimensions) * _BITS.get(_NAMES[s.element_type], 0) // 8 for s in shapes)


def _bytes_of(shape) -> int:
    """Returns the bytes of a value in the memory of the device, with the padding of its tiles."""
    if shape.tuple_shapes:
        return sum(map(_bytes_of, shape.tuple_shapes))
    if shape.layout.memory_space:  # that of a core
        return 0
    return _padded(
        tuple(shape.dimensions), tuple(shape.layout.minor_to_major), _first_tile(shape.layout)
    ) * _BITS.get(_NAMES[shape.element_type], 0) // 8  # fmt: skip


def _first_tile(layout):
    return tuple(layout.tiles[0].dimensions) if layout.tiles else ()


@functools.lru_cache(maxsize=10_000)
def _padded(dimensions, minor_to_major, tile):
    """Returns the number of elements of a shape whose last dimensions are padded to tiles."""
    in_order = [dimensions[i] for i in reversed(minor_to_major)] or list(dimensions)
    for i, side in enumerate(reversed(tile), 1):
        if i <= len(in_order):
            in_order[-i] = -(-in_order[-i] // side) * side
    return math.prod(in_order)
