"""Compiles programs of one core for a TPU, and prints their modeled time and memory."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tensorflow.compiler.xla.service import hlo_pb2

from tpu.check import compiler, cost
from tpu.connect.topology import Topology

HEADER = "| step, program | core | time | ours / this | memory | bytes accessed | not counted |"

# Writes the unoptimized program of a training step of run_tpu.py. Arguments: path, slice, flags.
OURS = """
import sys
import tensorflow as tf
from engine.cli import resolve_flags, runtime
runtime.prepare()
import run_tpu
from tpu.connect import connection, topology
from tpu.check import graph_builder, hlo
from engine.cli.flags import FLAGS
path, slice_name, *arguments = sys.argv[1:]
arguments += ["--dataset=synthetic", "--eval_split=test", "--best_metric=", "--model_dir=none"]
FLAGS(["run_tpu", f"--tpu_topology={slice_name}", *arguments])
settings, state = resolve_flags.resolve(iterations_per_loop=10)
found = topology.find(slice_name)
resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
estimator = run_tpu.build_estimator(settings, state, connection.Connection(found, resolver))
input_fn = run_tpu.build_input_fns(settings).train(0)
step = graph_builder.build_step(estimator, input_fn, "train", found, True)
with open(path, "wb") as file:
    file.write(hlo.lower(*step))
print("null")
"""


def print_rows(step: str, found: Topology, programs: dict[str, str]) -> None:
    """Prints a row per program.

    Args:
      step: name of the step, the same for all programs.
      found: the slice to compile for.
      programs: `{name: path of an unoptimized HloModuleProto}`; the first is ours.
    """
    ours = None
    for name, path in programs.items():
        with open(path, "rb") as file:
            program = _remove_all_reduces(file.read())
        compiled = compiler.compile_hlo(program, compiler.get_target(found), compiler.FULL)
        if not compiled.fits:
            raise RuntimeError(compiled.error)
        time = cost.estimate_step_time(compiled.optimized, found.generation, compiled.flops, str)
        ours = ours or time.seconds
        print(
            f"| {step}, {name} | {found.generation} | {time.seconds * 1e3:.1f} ms | "
            f"{ours / time.seconds:.2f} | {compiled.memory['peak'] / 2**30:.2f} GiB | "
            f"{compiled.bytes_accessed / 2**30:.1f} GiB | {time.not_counted} |",
            flush=True,
        )


def _remove_all_reduces(hlo):
    """Returns the step with each all-reduce replaced by its operand; some programs have none."""
    module = hlo_pb2.HloModuleProto.FromString(hlo)
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
