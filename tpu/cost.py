"""How long a step takes, by the compiler's own cost model.

libtpu notes in each instruction of the optimised program how many cycles it expects it to take. Not
counted are the sums over cores, small fusions without a note, infeed, and the host. For ResNet-50
the sum came within about 20 % of two published figures of hardware, once above and once below.
"""

from __future__ import annotations

import dataclasses
import json

from tensorflow.compiler.xla.service import hlo_pb2

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
      not_counted: number of all-reduces and fusions that carry no estimate.
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
    (entry,) = [c for c in module.computations if c.id == module.entry_computation_id]
    cycles = {instruction.id: _cycles(instruction) for instruction in entry.instructions}
    total = sum(cycles.values())
    largest = sorted(entry.instructions, key=lambda instruction: -cycles[instruction.id])[:10]
    silent = [i for i in entry.instructions if not cycles[i.id] and _costs_something(i)]
    seconds = total / _CLOCK[generation]
    return StepTime(
        seconds=seconds,
        share_of_peak=flops / seconds / _PEAK[generation] if seconds else 0.0,
        largest=tuple(_instruction(i, cycles[i.id] / total, where_of) for i in largest if total),
        not_counted=len(silent),
    )


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


def _costs_something(instruction):
    return instruction.opcode in ("fusion", "all-reduce", "select-and-scatter", "convolution")
