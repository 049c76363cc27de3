"""Step time by the compiler's cost model.

libtpu annotates the instructions of the optimized program with estimated cycles. Not included:
all-reduces, small fusions without an estimate, infeed and host. For ResNet-50 the sum is within
about 20 % of two published hardware figures, once above and once below.
"""

from __future__ import annotations

import dataclasses
import json

from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

_PRED = xla_data_pb2.PRED
_EXPENSIVE_OPCODES = ("fusion", "all-reduce", "select-and-scatter", "convolution", "pad")
# Clock in Hz and peak bfloat16 FLOP/s of a TensorFlow TPU device.
# https://cloud.google.com/tpu/docs/system-architecture-tpu-vm
_CLOCK = {"v2": 700e6, "v3": 940e6, "v4": 1050e6}
_PEAK = {"v2": 23e12, "v3": 61.5e12, "v4": 275e12}


@dataclasses.dataclass(frozen=True)
class Instruction:
    """An instruction of the optimized program.

    Attributes:
      share: share of the cycles of a step.
      name: of the HLO instruction.
      operation: name of the TensorFlow operation.
      where: "file:line" of the user's code.
    """

    share: float
    name: str
    operation: str
    where: str


@dataclasses.dataclass(frozen=True)
class StepTime:
    """Modeled time of a step on one core.

    Attributes:
      seconds: time of a step.
      copy_seconds: part of it that copies values to another layout.
      share_of_peak: share of the core's peak bfloat16 FLOP/s.
      largest: the most expensive instructions.
      not_counted: number of all-reduces, fusions and pads without an estimate.
    """

    seconds: float
    copy_seconds: float
    share_of_peak: float
    largest: tuple[Instruction, ...]
    not_counted: int


def estimate_step_time(optimized: bytes, generation: str, flops: float, line_of_op) -> StepTime:
    """Returns the step time, the sum of the estimated cycles of all executed instructions.

    Args:
      optimized: a serialized HloModuleProtoWithConfig.
      generation: "v2", "v3" or "v4".
      flops: floating-point operations of the step.
      line_of_op: function from the name of a TensorFlow operation to "file:line".
    """
    module = _module(optimized)
    computations = {computation.id: computation for computation in module.computations}
    cycles, not_counted = {}, 0  # {id: (instruction, cycles per step)}
    for instruction, times in _executed(computations, module.entry_computation_id):
        once = _cycles(instruction)
        cycles[instruction.id] = (instruction, times * once)
        not_counted += not once and instruction.opcode in _EXPENSIVE_OPCODES
    total = sum(number for _, number in cycles.values())
    copies = sum(number for instruction, number in cycles.values() if instruction.opcode == "copy")
    largest = sorted(cycles.values(), key=lambda pair: -pair[1])[:10]
    seconds = total / _CLOCK[generation]
    return StepTime(
        seconds=seconds,
        copy_seconds=copies / _CLOCK[generation],
        share_of_peak=flops / seconds / _PEAK[generation] if seconds else 0.0,
        largest=tuple(
            Instruction(
                share=number / total,
                name=instruction.name,
                operation=instruction.metadata.op_name,
                where=line_of_op(instruction.metadata.op_name),
            )
            for instruction, number in largest
            if number
        ),
        not_counted=not_counted,
    )


def _executed(computations, computation_id, times=1):
    """Yields (instruction, executions per step), including the bodies of loops."""
    for instruction in computations[computation_id].instructions:
        yield instruction, times
        if instruction.opcode == "while":
            first, second = (computations[i] for i in instruction.called_computation_ids)
            body, condition = (first, second) if _is_condition(second) else (second, first)
            yield from _executed(computations, body.id, times * _trip_count(condition))


def _is_condition(computation):
    (root,) = [i for i in computation.instructions if i.id == computation.root_id]
    return root.shape.element_type == _PRED and not root.shape.tuple_shapes


def _trip_count(condition):
    """Returns the constant bound of a loop's counter; 1 if there is none."""
    bounds = [i.literal.s32s[0] for i in condition.instructions if i.literal.s32s]
    return bounds[0] if len(bounds) == 1 else 1


def _module(optimized):
    """Parses field 1 of a HloModuleProtoWithConfig, a message that TensorFlow 2.15 lacks."""
    position, size, shift = 1, 0, 0
    while True:
        byte = optimized[position]
        size |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return hlo_pb2.HloModuleProto.FromString(optimized[position : position + size])


def _cycles(instruction):
    try:
        config = json.loads(instruction.backend_config)
    except ValueError:
        return 0
    return int(config.get("window_config", {}).get("estimated_cycles", 0) or 0)
