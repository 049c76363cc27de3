"""How long a step takes, by the compiler's own cost model.

libtpu notes in each instruction of the optimised program how many cycles it expects it to take. Not
counted are the sums over cores, small fusions without a note, infeed, and the host. For ResNet-50
the sum came within about 20 % of two published figures of hardware, once above and once below.
"""

from __future__ import annotations

import dataclasses
import json

from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

_PRED = xla_data_pb2.PRED
_COSTS_SOMETHING = ("fusion", "all-reduce", "select-and-scatter", "convolution", "pad")
# Cycles a second, and peak bfloat16 operations a second, of a device as TensorFlow sees it.
# https://cloud.google.com/tpu/docs/system-architecture-tpu-vm
_CLOCK = {"v2": 700e6, "v3": 940e6, "v4": 1050e6}
_PEAK = {"v2": 23e12, "v3": 61.5e12, "v4": 275e12}


@dataclasses.dataclass(frozen=True)
class Instruction:
    """An expensive one: its share of the cycles, what it is, and where it was written."""

    share: float
    name: str
    operation: str
    where: str


@dataclasses.dataclass(frozen=True)
class StepTime:
    """Of one core.

    Attributes:
      seconds: of a step.
      share_of_peak: of the bfloat16 operations a second that the core could do.
      largest: the most expensive instructions.
      not_counted: number of all-reduces, fusions and pads that carry no estimate.
    """

    seconds: float
    share_of_peak: float
    largest: tuple[Instruction, ...]
    not_counted: int


def step_time(optimized: bytes, generation: str, flops: float, where_of) -> StepTime:
    """Adds up the cycles of an optimised program.

    Args:
      optimized: a serialised HloModuleProtoWithConfig.
      generation: "v2", "v3" or "v4".
      flops: of the step.
      where_of: a function from the name of a TensorFlow operation to "file:line".
    """
    module = _module(optimized)
    computations = {computation.id: computation for computation in module.computations}
    cycles, silent = {}, 0  # {id: (instruction, cycles of a step)}
    for instruction, times in _executed(computations, module.entry_computation_id):
        once = _cycles(instruction)
        cycles[instruction.id] = (instruction, times * once)
        silent += not once and instruction.opcode in _COSTS_SOMETHING
    total = sum(number for _, number in cycles.values())
    largest = sorted(cycles.values(), key=lambda pair: -pair[1])[:10]
    seconds = total / _CLOCK[generation]
    return StepTime(
        seconds=seconds,
        share_of_peak=flops / seconds / _PEAK[generation] if seconds else 0.0,
        largest=tuple(_instruction(i, number / total, where_of) for i, number in largest if number),
        not_counted=silent,
    )


def _executed(computations, computation_id, times=1):
    """Yields (instruction, how often a step runs it), those inside of loops too."""
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
    """Returns the bound that a loop's counter is compared with; 1 if it is not a constant."""
    bounds = [i.literal.s32s[0] for i in condition.instructions if i.literal.s32s]
    return bounds[0] if len(bounds) == 1 else 1


def _instruction(instruction, share, where_of):
    name = instruction.metadata.op_name
    return Instruction(share, instruction.name, name, where_of(name))


def _module(optimized):
    """Returns field 1 of a HloModuleProtoWithConfig, which this TensorFlow has no class of."""
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
