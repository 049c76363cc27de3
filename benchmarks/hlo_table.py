"""Compiles programs of one core for a TPU, and prints their modeled time and memory."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from tpu.check import compiler, cost, graph_builder, hlo_traffic
from tpu.connect import topology
from tpu.connect.topology import Topology
from tpu.graph import hlo

HEADER = (
    "| step, program | core | time | copies | ours / this | memory | bytes accessed | by bytes |"
)
LARGEST_HEADER = "| step, program | core | largest batch per core | memory |"
_COMPILER_SECONDS = 2 * 3600  # a step for v4 with full effort, on a busy machine
_PRECISION = 16  # the search of the largest batch ends at an interval of a sixteenth


def write_step(path: str, slice_name: str, model_fn, input_fn, batch_per_core: int, params=None):
    """Writes the unoptimized program of a training step of other people's TPUEstimator program.

    Args:
      path: of the HloModuleProto to write.
      slice_name: such as "v3-8".
      model_fn: of the program.
      input_fn: of the program.
      batch_per_core: examples per core.
      params: of the program, a dict.
    """
    found = topology.find(slice_name)
    tpu = tf.compat.v1.estimator.tpu
    estimator = tpu.TPUEstimator(
        model_fn,
        config=tpu.RunConfig(
            cluster=tf.distribute.cluster_resolver.TPUClusterResolver("local"),
            model_dir="none",
            tpu_config=tpu.TPUConfig(
                iterations_per_loop=10,
                per_host_input_for_training=tpu.InputPipelineConfig.PER_HOST_V2,
            ),
        ),
        use_tpu=True,
        params=params,
        train_batch_size=batch_per_core * found.num_cores,
    )
    lower(path, estimator, input_fn, "train", found)


def lower(path: str, estimator, input_fn, mode: str, found: Topology) -> None:
    """Writes the unoptimized program of a step of a TPUEstimator.

    Args:
      path: of the HloModuleProto to write.
      estimator: the TPUEstimator.
      input_fn: of the step.
      mode: "train" or "eval".
      found: the slice.
    """
    checked = graph_builder.CheckedMode(estimator, input_fn, mode, found)
    step = graph_builder.build_once(checked, control_flow_v2=True)
    with open(path, "wb") as file:
        file.write(hlo.lower(step.graph, step.program).module)


def print_rows(step: str, found: Topology, programs: dict[str, str]) -> None:
    """Prints a row per program.

    Args:
      step: name of the step, the same for all programs.
      found: the slice to compile for.
      programs: `{name: path of an unoptimized HloModuleProto}`; the first is ours.
    """
    ours = None
    for name, path in programs.items():
        time, compiled = compile_step(path, found)
        ours = ours or time.compiler_seconds
        print(
            f"| {step}, {name} | {found.generation} | {time.compiler_seconds * 1e3:.1f} ms | "
            f"{time.copy_seconds * 1e3:.1f} ms | {ours / time.compiler_seconds:.2f} | "
            f"{compiled.memory['peak'] / 2**30:.2f} GiB | "
            f"{compiled.bytes_accessed / 2**30:.1f} GiB | {time.moved_seconds * 1e3:.1f} ms |",
            flush=True,
        )


def largest_batch(write, first: int, found: Topology, folder: str) -> tuple[int, int]:
    """Returns (size, memory): the largest batch per core that compiles, with quick effort.

    Args:
      write: `(path, name of the slice, batch per core)`, writes the unoptimized HloModuleProto.
      first: the batch per core to begin with.
      found: the slice to compile for.
      folder: for the programs.

    Returns:
      Size 0 if no batch compiles; memory in bytes.

    Raises:
      RuntimeError: a program does not compile for another reason than its memory.
    """
    fits, memory, fails = 0, 0, None
    size, path = first, f"{folder}/batch"
    while fails is None or fails - fits > max(1, fits // _PRECISION):
        write(path, found.name, size)
        compiled = _compile(path, found, compiler.QUICK)
        if compiled.fits:
            fits, memory = size, compiled.peak_bytes
        elif compiled.out_of_memory:
            fails = size
        else:
            raise RuntimeError(compiled.error)
        size = 2 * size if fails is None else (fits + fails) // 2
    return fits, memory


def compile_step(path: str, found: Topology) -> tuple[cost.StepTime, compiler.Compiled]:
    """Compiles a step without its all-reduces, with full effort.

    Args:
      path: of an unoptimized HloModuleProto.
      found: the slice to compile for.

    Raises:
      RuntimeError: it does not compile, or does not fit.
    """
    compiled = _compile(path, found, compiler.FULL)
    if not compiled.fits:
        raise RuntimeError(compiled.error)
    return cost.estimate_step_time(compiled.optimized, found, compiled.flops, str), compiled


def _compile(path, found, effort):
    program = _remove_all_reduces(read(path))
    return compiler.compile_hlo(program, compiler.get_target(found), effort, _COMPILER_SECONDS)


def read(path: str) -> hlo_pb2.HloModuleProto:
    """Returns an unoptimized program."""
    with open(path, "rb") as file:
        return hlo_pb2.HloModuleProto.FromString(file.read())


def all_reduce_bytes(path: str) -> int:
    """Returns the bytes that the all-reduces of a step sum up over the cores."""
    return sum(
        hlo_traffic.all_reduce_bytes(instruction)
        for computation in read(path).computations
        for instruction in computation.instructions
    )


def _remove_all_reduces(module):
    """Returns the step with each all-reduce replaced by its operand; some programs have none."""
    for computation in module.computations:
        sums = [i for i in computation.instructions if i.opcode == "all-reduce"]
        replacements = {}
        for instruction in sums:
            (operand,) = instruction.operand_ids
            replacements[instruction.id] = replacements.get(operand, operand)
        for instruction in computation.instructions:
            instruction.operand_ids[:] = [replacements.get(i, i) for i in instruction.operand_ids]
        for instruction in sums:
            computation.instructions.remove(instruction)
    return module.SerializeToString()
