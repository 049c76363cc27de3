"""Connects to a TPU: finds its address, checks the environment, queries its topology."""

from __future__ import annotations

import contextlib
import dataclasses
import os

import tensorflow as tf

from tpu.connect import address, environment, topology
from tpu.connect.address import Address
from tpu.connect.request import Request, TPUError
from tpu.connect.topology import Topology
from tpu.emulator import emulator
from tpu.findings import ERROR, Finding

_DEFAULT_EMULATED_SLICE = "v3-8"


@dataclasses.dataclass(frozen=True)
class Connection:
    """A TPU to build a TPUEstimator for.

    Attributes:
      topology: the slice; None for CPU or GPU.
      resolver: for `RunConfig(cluster=...)`; None for CPU or GPU.
      is_remote: True if the TPU hosts are not this machine.
    """

    topology: Topology | None = None
    resolver: tf.distribute.cluster_resolver.TPUClusterResolver | None = None
    is_remote: bool = False

    @property
    def use_tpu(self) -> bool:
        """True if there is a TPU."""
        return self.topology is not None


def environment_findings(request: Request) -> list[Finding]:
    """Returns the findings that make `connect` fail, without connecting.

    Checks a TPU only if `request.tpu` names one.
    """
    try:
        found = address.find(request.tpu, {}) if request.tpu else None
    except ValueError as error:
        return [Finding(ERROR, "environment", str(error))]
    wanted = topology.find(request.topology, any_generation=True)
    return [Finding(ERROR, "environment", text) for text in _check(request, found, wanted)]


@contextlib.contextmanager
def connect(request: Request):
    """Yields a `Connection` and prints the TPU it uses, in one line.

    Raises:
      TPUError: all findings in one message, before anything is built or written.
    """
    found = _find(request)
    if found is None:
        yield Connection()
        return
    wanted = topology.find(request.topology) if request.topology else None
    if found.text == address.EMULATOR:
        wanted = wanted or topology.find(_DEFAULT_EMULATED_SLICE)
    _raise_if_any(_check(request, found, wanted))
    with contextlib.ExitStack() as stack:
        if found.text == address.EMULATOR:
            stack.enter_context(emulator.emulate(wanted))
        resolver, metadata = _query(request, found)
        actual = _actual_topology(metadata, found, wanted)
        if wanted is None:
            _raise_if_any(_check_topology(request, actual))
        print(_describe(found, actual), flush=True)
        yield Connection(actual, resolver, found.is_remote)


def _find(request) -> Address | None:
    """Returns the address to connect to; None for CPU or GPU."""
    if request.use_tpu == "false":
        return None
    try:
        found = address.find(request.tpu, os.environ)
    except ValueError as error:
        raise TPUError(str(error)) from error
    if found is None and request.use_tpu == "auto":
        print("no TPU: --tpu and TPU_NAME are unset, no local device; running on GPU or CPU")
        return None
    if found is None:
        raise TPUError(
            "--use_tpu=true, but there is no TPU: --tpu and TPU_NAME are unset, and this machine "
            "has no TPU device. Set --tpu=NAME, --tpu=grpc://IP:8470 or --tpu=emulator"
        )
    return found


def _check(request, found, wanted):
    findings = environment.check_software()
    if found is not None and found.text != address.EMULATOR:
        findings += environment.check_address(found)
        findings += environment.check_paths(found, request.paths)
    if wanted is not None:
        findings += _check_topology(request, wanted)
    return findings


def _check_topology(request, tpu_topology):
    return environment.check_topology(
        tpu_topology,
        request.mode,
        request.batch_sizes,
        request.accumulate_steps,
        request.on_one_host,
    )


def _raise_if_any(findings):
    if len(findings) == 1:
        raise TPUError(findings[0])
    if findings:
        lines = [f"  {i}. {finding}" for i, finding in enumerate(findings, start=1)]
        raise TPUError("\n".join([f"cannot use the TPU, {len(findings)} problems:", *lines]))


def _query(request, found):
    """Returns the resolver of a TPU and its `TPUSystemMetadata`."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            found.text, request.zone or None, request.project or None
        )
        return resolver, resolver.get_tpu_system_metadata()
    except Exception as error:  # Google's API clients raise exceptions with no common base
        hint = (
            "Check that it exists and is READY (gcloud compute tpus tpu-vm list), and set "
            "--tpu_zone and --gcp_project if this machine is in another zone or project"
            if found.is_named
            else "Check that its runtime is running and is that of TensorFlow 2.15"
        )
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TPUError(f"{found.source} cannot be reached: {reason}. {hint}") from error


def _actual_topology(metadata, found, wanted):
    """Returns the topology of the TPU; raises TPUError if it is not the requested one."""
    hosts, cores = metadata.num_hosts, metadata.num_of_cores_per_host
    if not metadata.num_cores:
        devices = ", ".join(device.name for device in metadata.devices)
        raise TPUError(f"{found.source}: connected, but it has no TPU device; devices: {devices}")
    if wanted is None:
        return Topology(f"{hosts}x{cores}", hosts, cores, 0)
    if (hosts, cores) != (wanted.num_hosts, wanted.cores_per_host):
        raise TPUError(
            f"--tpu_topology={wanted.name} has {wanted.num_hosts} hosts x {wanted.cores_per_host} "
            f"cores, but {found.source} has {hosts} x {cores}"
        )
    return wanted


def _describe(found, actual):
    plural = "s" if actual.num_hosts > 1 else ""
    cores = f"{actual.num_hosts} host{plural} x {actual.cores_per_host} cores"
    if found.text == address.EMULATOR:
        return (
            f"emulating a TPU {actual.name} ({cores}) on this CPU; not emulated: "
            f"{emulator.NOT_EMULATED}"
        )
    return f"TPU {found.text} ({cores})"
