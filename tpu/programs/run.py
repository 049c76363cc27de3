"""`python -m tpu emulate` and `run`: a program on emulated TPU cores, or on real devices."""

from __future__ import annotations

import collections
import contextlib
import traceback
from unittest import mock

import tensorflow as tf
from tensorflow.python.tpu import tpu as tpu_lib

from tpu.connect.request import Hosts, TPUError
from tpu.connect.topology import Topology
from tpu.emulator import emulator
from tpu.findings import is_unsupported, user_line_in
from tpu.pjrt import devices
from tpu.programs import calls
from tpu.programs.program import TENSORFLOW, Program, log


def emulate(program: Program, tpu_topology: Topology) -> int:
    """Runs a program; every TPUEstimator(use_tpu=True) computes on emulated cores.

    Prints a summary of the calls of Estimators, and of computations of tf.tpu.shard and the like,
    to stderr.

    Returns:
      0; 1 after an error line if the program needs what the emulator does not support.

    Raises:
      Any exception of the program.
    """
    cores = f"{tpu_topology.num_hosts} x {tpu_topology.cores_per_host} cores"
    log(f"emulating a TPU {tpu_topology.name} ({cores}); not emulated: {emulator.NOT_EMULATED}")
    return _run(program, emulator.emulate(tpu_topology), "emulated cores")


def run(program: Program, spec: str, python: str, hosts: Hosts) -> int:
    """Runs a program; every TPUEstimator(use_tpu=True) computes on PJRT devices.

    Takes the arguments of `devices.run_on_devices`, and prints a summary as `emulate` does. With
    `TENSORFLOW` for `spec`, TensorFlow finds the devices: TPU v2 to v4, GPUs or the CPU.

    Returns:
      0; 1 after an error line if there are no such devices, if they fail, or if the program needs
      what they do not support.

    Raises:
      Any exception of the program.
    """

    @contextlib.contextmanager
    def cores():
        with devices.run_on_devices(spec, python, hosts) as (_, found):
            log(f"{devices.describe(found)}; not supported: {devices.NOT_SUPPORTED}")
            yield

    if spec == TENSORFLOW:
        return _run(program, contextlib.nullcontext(), "a TPU")
    return _run(program, cores(), "PJRT devices")


def _run(program, cores, where):
    """Runs a program in a context manager in which TPUEstimator finds its cores."""
    counts, failed = collections.Counter(), []
    without_tpu = []  # the reasons of the calls that ran without a TPU

    def execute(call):
        counts[call.name, call.on_tpu] += 1
        if not call.on_tpu and call.without_tpu not in without_tpu:
            without_tpu.append(call.without_tpu)
        try:
            return call.execute()
        except BaseException:
            counts[call.name, call.on_tpu] -= 1
            failed.append(call.name)
            raise

    def end(how, status):
        log(f"the program ended by {how}")
        log(_summary(counts, failed, without_tpu, where))
        return 1 if status is None else status

    try:
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(cores)
                stack.enter_context(calls.intercept(execute))
                stack.enter_context(_count_computations(counts))
                stack.enter_context(_without_copies_of_errors())
                program.run(end)
        finally:
            log(_summary(counts, failed, without_tpu, where))
    except NotImplementedError as error:
        if not is_unsupported(error):
            raise
        place = user_line_in(traceback.extract_tb(error.__traceback__))
        log(f"error: {error}" if "(at " in str(error) else f"error: {error} (at {place})")
        return 1
    except TPUError as error:
        log(f"error: {error}")
        return 1
    return 0


def _count_computations(counts):
    """A context manager that counts the computations which a program replicates on its own."""
    real = tpu_lib.split_compile_and_replicate

    def split_compile_and_replicate(computation, *args, **kwargs):
        replicated = real(computation, *args, **kwargs)
        if not emulator.is_of_estimator(computation):
            counts["computation of tf.tpu", True] += 1
        return replicated

    return mock.patch.object(tpu_lib, "split_compile_and_replicate", split_compile_and_replicate)


@contextlib.contextmanager
def _without_copies_of_errors():
    """A context manager in which TPUEstimator does not log the stack of an error that it raises."""

    def is_no_copy(record):
        return not record.getMessage().startswith("Closing session due to error")

    logger = tf.get_logger()
    logger.addFilter(is_no_copy)
    try:
        yield
    finally:
        logger.removeFilter(is_no_copy)


def _summary(counts, failed, without_tpu, where):
    on_tpu = [f"{number} {name}" for (name, is_tpu), number in counts.items() if is_tpu and number]
    on_tpu += [f"{name} failed" for name in failed]
    if on_tpu:
        return f"on {where}: {', '.join(on_tpu)}"
    if without_tpu:
        return f"nothing ran on {where}: {'; '.join(without_tpu)}"
    return f"nothing ran on {where}: the program called no TPUEstimator"
