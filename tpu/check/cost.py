"""Step time by the compiler's cost model.

libtpu annotates the instructions of the optimized program with estimated cycles. Those without,
such as gathers, copies and small fusions, take the time to move their bytes, and all-reduces that
of the links of the slice; nothing overlaps. Not included: infeed and host.
"""

from __future__ import annotations

import dataclasses
import json

from tensorflow.compiler.xla.service import hlo_pb2

from tpu.check import hlo_executions, hlo_traffic, links
from tpu.connect.topology import Topology

_SHOWN = 10  # instructions
# Custom calls that compute nothing.
_FREE_CALLS = {
    "AllocateBuffer", "BarrierStart", "Sharding", "X64Combine", "X64SplitHigh", "X64SplitLow"
}  # fmt: skip
# Peak bfloat16 FLOP/s of a TPU device, and its clock in Hz.
# https://cloud.google.com/tpu/docs/system-architecture-tpu-vm
_PEAK = {"v2": 23e12, "v3": 61.5e12, "v4": 275e12, "v5e": 197e12, "v5p": 459e12, "v6e": 918e12}
# Of v5e and later: the peak divided by the FLOPs per cycle of all MXUs, 2 x 128 x 128 each, on v6e
# 2 x 256 x 256. The cycles that libtpu expects of a large matrix product agree.
_CLOCK = {"v2": 700e6, "v3": 940e6, "v4": 1050e6, "v5e": 1.5e9, "v5p": 1.75e9, "v6e": 1.75e9}


# Bytes/s of the memory of a TPU device; a chip of v2 and v3 has two.
# https://cloud.google.com/tpu/docs/system-architecture-tpu-vm
_MEMORY = {"v2": 350e9, "v3": 450e9, "v4": 1.228e12, "v5e": 819e9, "v5p": 2.765e12, "v6e": 1.64e12}
# Published times of steps on TPUs per modeled time, the median: docs/check.md.
MEASURED_PER_MODELED = 1.4
# A larger estimate for one execution is an overflow of the compiler: 18 minutes of a v3 core.
_MAX_CYCLES = 10**12


@dataclasses.dataclass(frozen=True)
class Instruction:
    """An instruction of the optimized program.

    Attributes:
      share: share of the time of a step.
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
      seconds: time of a step, at least.
      expected_seconds: about the time of a step in a training with input and host, as published
        ones were slower than this model.
      compiler_seconds: part of it that the compiler estimates.
      moved_seconds: part of it of the instructions that the compiler does not estimate, by their
        bytes.
      all_reduce_seconds: part of it that sums up over the cores.
      copy_seconds: part of it that copies values to another layout.
      share_of_peak: share of the core's peak bfloat16 FLOP/s.
      largest: the most expensive instructions.
      unknown_loops: "file:line" or name of the loops whose trip count is unknown, counted once.
      skipped_branches: number of branches that cost less than another one of their conditional.
      custom_calls: targets of the custom calls without an estimate.
    """

    seconds: float
    expected_seconds: float
    compiler_seconds: float
    moved_seconds: float
    all_reduce_seconds: float
    copy_seconds: float
    share_of_peak: float
    largest: tuple[Instruction, ...]
    unknown_loops: tuple[str, ...] = ()
    skipped_branches: int = 0
    custom_calls: tuple[str, ...] = ()


def estimate_step_time(optimized: bytes, slice_: Topology, flops: float, line_of_op) -> StepTime:
    """Returns the step time, the sum of those of all executed instructions.

    Args:
      optimized: a serialized HloModuleProtoWithConfig.
      slice_: the slice that the step is compiled for.
      flops: floating-point operations of the step.
      line_of_op: function from the name of a TensorFlow operation to "file:line".
    """
    # A HloModuleProtoWithConfig, which TensorFlow 2.15 lacks, begins with the field of a HloProto.
    module = hlo_pb2.HloProto.FromString(optimized).hlo_module
    generation, traffic = slice_.generation, hlo_traffic.Traffic(module)
    costs: dict[int, tuple[float, float]] = {}

    def cost_of(instruction):
        """Returns the seconds of an execution: by cycles, and else by bytes."""
        if instruction.id not in costs:
            cycles = _cycles(instruction)
            num_bytes = 0 if cycles else traffic.num_bytes(instruction)
            costs[instruction.id] = cycles / _CLOCK[generation], num_bytes / _MEMORY[generation]
        return costs[instruction.id]

    step = hlo_executions.Step(module, lambda instruction: sum(cost_of(instruction)))
    executed = step.executed()
    times = {i.id: (i, number * sum(cost_of(i))) for i, number in executed}
    summed = sum(number * hlo_traffic.all_reduce_bytes(i) for i, number in executed)
    calls = {i.custom_call_target for i, _ in executed if i.opcode == "custom-call"}
    known = {i.custom_call_target for i, _ in executed if cost_of(i)[0]}
    largest = sorted(times.values(), key=lambda pair: -pair[1])[:_SHOWN]
    parts = (
        sum(number * cost_of(i)[0] for i, number in executed),
        sum(number * cost_of(i)[1] for i, number in executed),
        links.all_reduce_seconds(summed, slice_) if summed else 0.0,
    )
    total = sum(parts)
    return StepTime(
        total,
        total * MEASURED_PER_MODELED,
        *parts,
        copy_seconds=sum(taken for i, taken in times.values() if i.opcode == "copy"),
        share_of_peak=flops / total / _PEAK[generation] if total else 0.0,
        largest=tuple(
            Instruction(
                share=taken / total,
                name=instruction.name,
                operation=instruction.metadata.op_name,
                where=line_of_op(instruction.metadata.op_name),
            )
            for instruction, taken in largest
            if taken
        ),
        unknown_loops=tuple(
            line_of_op(loop.metadata.op_name) or loop.metadata.op_name or loop.name
            for loop in step.unknown_loops
        ),
        skipped_branches=step.skipped_branches,
        custom_calls=tuple(sorted(calls - known - _FREE_CALLS)),
    )


def _cycles(instruction):
    try:
        config = json.loads(instruction.backend_config)
    except ValueError:
        return 0
    cycles = int(config.get("window_config", {}).get("estimated_cycles", 0) or 0)
    return cycles if cycles < _MAX_CYCLES else 0
