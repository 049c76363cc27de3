"""Step time by the compiler's cost model.

libtpu annotates the instructions of the optimized program with estimated cycles. Not included:
all-reduces, small fusions without an estimate, infeed and host. For ResNet-50 the sum is within
about 20 % of two published hardware figures, once above and once below.
"""

from __future__ import annotations

import dataclasses
import json

from tensorflow.compiler.xla.service import hlo_pb2

from tpu.check import hlo_executions

# Custom calls that compute nothing.
_FREE_CALLS = {
    "AllocateBuffer", "BarrierStart", "Sharding", "X64Combine", "X64SplitHigh", "X64SplitLow"
}  # fmt: skip
_EXPENSIVE_OPCODES = ("fusion", "all-reduce", "select-and-scatter", "convolution", "pad")
# Peak bfloat16 FLOP/s of a TPU device, and its clock in Hz.
# https://cloud.google.com/tpu/docs/system-architecture-tpu-vm
_PEAK = {"v2": 23e12, "v3": 61.5e12, "v4": 275e12, "v5e": 197e12, "v5p": 459e12, "v6e": 918e12}
# Of v5e and later: the peak divided by the FLOPs per cycle of all MXUs, 2 x 128 x 128 each, on v6e
# 2 x 256 x 256. The cycles that libtpu expects of a large matrix product agree.
_CLOCK = {"v2": 700e6, "v3": 940e6, "v4": 1050e6, "v5e": 1.5e9, "v5p": 1.75e9, "v6e": 1.75e9}


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
      unknown_loops: "file:line" or name of the loops whose trip count is unknown, counted once.
      skipped_branches: number of branches that cost less than another one of their conditional.
      custom_calls: targets of the custom calls without an estimate.
    """

    seconds: float
    copy_seconds: float
    share_of_peak: float
    largest: tuple[Instruction, ...]
    not_counted: int
    unknown_loops: tuple[str, ...] = ()
    skipped_branches: int = 0
    custom_calls: tuple[str, ...] = ()


def estimate_step_time(optimized: bytes, generation: str, flops: float, line_of_op) -> StepTime:
    """Returns the step time, the sum of the estimated cycles of all executed instructions.

    Args:
      optimized: a serialized HloModuleProtoWithConfig.
      generation: such as "v3".
      flops: floating-point operations of the step.
      line_of_op: function from the name of a TensorFlow operation to "file:line".
    """
    # A HloModuleProtoWithConfig, which TensorFlow 2.15 lacks, begins with the field of a HloProto.
    step = hlo_executions.Step(hlo_pb2.HloProto.FromString(optimized).hlo_module, _cycles)
    cycles, not_counted, custom_calls = {}, 0, []  # {id: (instruction, cycles per step)}
    for instruction, times in step.executed():
        once = _cycles(instruction)
        cycles[instruction.id] = (instruction, times * once)
        not_counted += not once and instruction.opcode in _EXPENSIVE_OPCODES
        if instruction.opcode == "custom-call" and not once:
            custom_calls.append(instruction.custom_call_target)
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
        unknown_loops=tuple(
            line_of_op(loop.metadata.op_name) or loop.metadata.op_name or loop.name
            for loop in step.unknown_loops
        ),
        skipped_branches=step.skipped_branches,
        custom_calls=tuple(sorted(set(custom_calls) - _FREE_CALLS)),
    )


def _cycles(instruction):
    try:
        config = json.loads(instruction.backend_config)
    except ValueError:
        return 0
    return int(config.get("window_config", {}).get("estimated_cycles", 0) or 0)
