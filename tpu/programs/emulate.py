"""`python -m tpu emulate`: runs a program on emulated TPU cores."""

from __future__ import annotations

import collections
import sys

from tpu.connect.topology import Topology
from tpu.emulator import emulator
from tpu.programs import calls
from tpu.programs.program import Program


def run(program: Program, tpu_topology: Topology) -> int:
    """Runs a program; every TPUEstimator(use_tpu=True) computes on emulated cores.

    Prints a summary of the calls of Estimators to stderr.

    Returns:
      The exit status of the program.

    Raises:
      Any exception of the program.
    """
    counts = collections.Counter()

    def execute(call):
        counts[call.method.strip("_"), call.on_tpu] += 1
        return call.execute()

    cores = f"{tpu_topology.num_hosts} x {tpu_topology.cores_per_host} cores"
    _log(f"emulating a TPU {tpu_topology.name} ({cores}); not emulated: {emulator.NOT_EMULATED}")
    try:
        with emulator.emulate(tpu_topology), calls.intercept(execute):
            program.run()
    finally:
        _log(_summary(counts))
    return 0


def _summary(counts):
    on_tpu = [f"{number} {name}" for (name, is_tpu), number in counts.items() if is_tpu]
    if on_tpu:
        return f"on emulated cores: {', '.join(on_tpu)}"
    if counts:
        return "nothing ran on emulated cores: set use_tpu=True by the program's own flag"
    return "nothing ran on emulated cores: the program called no TPUEstimator"


def _log(message):
    print(f"tpu: {message}", file=sys.stderr, flush=True)
