"""`python -m tpu emulate`: runs a program on emulated TPU cores."""

from __future__ import annotations

import collections
import os
import traceback

from tpu.connect.topology import Topology
from tpu.emulator import emulator
from tpu.findings import user_line_in
from tpu.programs import calls
from tpu.programs.program import Program, log

_EMULATOR_FOLDER = os.path.dirname(emulator.__file__) + os.sep


def run(program: Program, tpu_topology: Topology) -> int:
    """Runs a program; every TPUEstimator(use_tpu=True) computes on emulated cores.

    Prints a summary of the calls of Estimators to stderr.

    Returns:
      0; 1 after an error line if the program needs what the emulator does not support.

    Raises:
      Any exception of the program.
    """
    counts, failed = collections.Counter(), []

    def execute(call):
        counts[call.name, call.on_tpu] += 1
        try:
            return call.execute()
        except BaseException:
            counts[call.name, call.on_tpu] -= 1
            failed.append(call.name)
            raise

    def end(how, status):
        log(f"the program ended by {how}")
        log(_summary(counts, failed))
        return 1 if status is None else status

    cores = f"{tpu_topology.num_hosts} x {tpu_topology.cores_per_host} cores"
    log(f"emulating a TPU {tpu_topology.name} ({cores}); not emulated: {emulator.NOT_EMULATED}")
    try:
        try:
            with emulator.emulate(tpu_topology), calls.intercept(execute):
                program.run(end)
        finally:
            log(_summary(counts, failed))
    except NotImplementedError as error:
        frames = traceback.extract_tb(error.__traceback__)
        if not frames[-1].filename.startswith(_EMULATOR_FOLDER):
            raise
        log(f"error: {error} (at {user_line_in(frames)})")
        return 1
    return 0


def _summary(counts, failed):
    on_tpu = [f"{number} {name}" for (name, is_tpu), number in counts.items() if is_tpu and number]
    on_tpu += [f"{name} failed" for name in failed]
    if on_tpu:
        return f"on emulated cores: {', '.join(on_tpu)}"
    if counts:
        return "nothing ran on emulated cores: set use_tpu=True by the program's own flag"
    return "nothing ran on emulated cores: the program called no TPUEstimator"
