"""PJRT devices in place of the cores of a TPU, for a program or for run_tpu.py."""

from __future__ import annotations

import contextlib
import sys

from tpu.connect.request import FOUND_BY_JAX, Hosts, TPUError
from tpu.connect.topology import Topology

PLATFORMS = ("tpu", "gpu", "cpu")
NOT_SUPPORTED = "TPU embeddings, outside compilation, model parallelism"


def parse(text: str) -> tuple[str, int | None]:
    """Returns the platform and the number of devices of "tpu", "gpu", "cpu" or "cpu:8".

    "" is the accelerator that JAX finds; the number is None for all devices.

    Raises:
      ValueError: neither.
    """
    platform, colon, number = text.partition(":")
    is_valid = platform in PLATFORMS and (not colon or (number.isdecimal() and int(number) > 0))
    if text and not is_valid:
        raise ValueError(f"'{text}' is none of tpu, gpu, cpu and, with a number of devices, cpu:8")
    return platform, int(number) if number else None


class LostDevicesError(TPUError):
    """Devices have failed during a loop of steps. The checkpoints are kept."""

    exit_status = 1


@contextlib.contextmanager
def run_on_devices(spec: str = "", python: str = "", hosts: Hosts = FOUND_BY_JAX):
    """Lets every TPUEstimator(use_tpu=True) of this process run on PJRT devices.

    Args:
      spec: of the devices of this host; see `parse`.
      python: the interpreter that has JAX; "" for this one.
      hosts: which run the same program together; see `tpu.pjrt.hosts`.

    Yields:
      (`Topology`: its cores are the devices of all hosts, the `client.Devices`).

    Raises:
      PJRTError: there are no such devices, or a step does not fit or compile.
      LostDevicesError: they fail later.
      NotImplementedError: a program needs what the devices do not support.
    """
    import tensorflow as tf

    from tpu.emulator import emulator
    from tpu.pjrt.client import Devices, PJRTError
    from tpu.pjrt.cores import PJRTCores

    platform, number = parse(spec)
    arguments = python or sys.executable, platform, number
    devices = Devices(*arguments, hosts.coordinator or None, hosts.id, hosts.number)
    if not spec and devices.kind == "cpu":  # the accelerator was forgotten, or JAX lacks libtpu
        devices.close("no accelerator")
        raise PJRTError(
            f"JAX of {python or sys.executable} finds no TPU and no GPU. Install 'jax[tpu]' there, "
            "on the machine with the TPU, or set --devices=cpu:8 for CPU devices"
        )
    num_hosts, per_host, reason = devices.num_processes, devices.num_local, ""
    found = Topology(f"{num_hosts}x{per_host}", num_hosts, per_host, 0)
    cores = PJRTCores(devices)
    try:
        with emulator.emulate(found, cores):
            yield found, devices
    except tf.errors.OpError as error:  # with the text of the error of a host operation
        reason = str(cores.error or error)
        if cores.error is not None:
            raise LostDevicesError(f"{cores.error}. Checkpoints are kept") from None
        raise
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        raise
    finally:
        devices.close(reason.partition("\n")[0][:300])


def describe(devices) -> str:
    """Returns the devices of a `client.Devices` in words."""
    count = devices.num_global
    number = f"{count} device{'s' if count > 1 else ''}"
    hosts = f" on {devices.num_processes} hosts" if devices.num_processes > 1 else ""
    return f"{number}{hosts} through PJRT: {devices.kind} (JAX {devices.jax_version})"
