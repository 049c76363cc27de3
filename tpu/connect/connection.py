"""The TPU that a program is to use: found, checked, and described."""

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

_DEFAULT_EMULATED = "v3-8"


@dataclasses.dataclass(frozen=True)
class Connection:
    """What a TPUEstimator is made with.

    Attributes:
      topology: the slice; None for CPU or GPU.
      resolver: for `RunConfig(cluster=...)`; None for CPU or GPU.
      is_remote: whether the TPU's hosts cannot call what is in this process.
    """

    topology: Topology | None = None
    resolver: tf.distribute.cluster_resolver.TPUClusterResolver | None = None
    is_remote: bool = False

    @property
    def use_tpu(self) -> bool:
        """Whether there is a TPU."""
        return self.topology is not None


def environment_findings(request: Request) -> list[Finding]:
    """Returns what `connect` would refuse, without connecting; of a TPU only if one is named."""
    try:
        found = address.find(request.tpu, {}) if request.tpu else None
    except ValueError as error:
        return [Finding(ERROR, "environment", str(error))]
    wanted = topology.find(request.topology, any_generation=True)
    texts = _findings(request, found, wanted)
    return [Finding(ERROR, "environment", text) for text in texts]


@contextlib.contextmanager
def connect(request: Request):
    """Yields a `Connection`; says in a line what it is to.

    Raises:
      TPUError: every finding in one message. Nothing was built and nothing was written.
    """
    found = _find(request)
    if found is None:
        yield Connection()
        return
    wanted = topology.find(request.topology) if request.topology else None
    if found.text == address.EMULATOR:
        wanted = wanted or topology.find(_DEFAULT_EMULATED)
    _require(_findings(request, found, wanted))
    with contextlib.ExitStack() as stack:
        if found.text == address.EMULATOR:
            stack.enter_context(emulator.emulate(wanted))
        resolver, metadata = _ask(request, found)
        actual = _topology_of(metadata, found, wanted)
        if wanted is None:
            _require(_of_topology(request, actual))
        print(_describe(found, actual), flush=True)
        yield Connection(actual, resolver, found.is_remote)


def _find(request) -> Address | None:
    """Returns the address to connect to, None for CPU or GPU."""
    if request.use_tpu == "false":
        return None
    try:
        found = address.find(request.tpu, os.environ)
    except ValueError as error:
        raise TPUError(str(error)) from error
    if found is None and request.use_tpu == "auto":
        print("no TPU in this machine or named by --tpu or TPU_NAME: running on GPU or CPU")
        return None
    if found is None:
        raise TPUError(
            "--use_tpu=true, but no TPU: neither --tpu nor TPU_NAME names one, and none is in this "
            "machine. Give --tpu=NAME, --tpu=grpc://IP:8470, or --tpu=emulator"
        )
    return found


def _findings(request, found, wanted):
    findings = environment.of_software()
    if found is not None and found.text != address.EMULATOR:
        findings += environment.of_address(found)
        findings += environment.of_paths(found, request.paths)
    if wanted is not None:
        findings += _of_topology(request, wanted)
    return findings


def _of_topology(request, tpu_topology):
    return environment.of_topology(
        tpu_topology,
        request.mode,
        request.batch_sizes,
        request.accumulate_steps,
        request.on_one_host,
    )


def _require(findings):
    if len(findings) == 1:
        raise TPUError(findings[0])
    if findings:
        lines = [f"  {i}. {finding}" for i, finding in enumerate(findings, start=1)]
        raise TPUError("\n".join([f"{len(findings)} things keep this from the TPU:", *lines]))


def _ask(request, found):
    """Returns the resolver of a TPU, and what the TPU says of itself."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            found.text, request.zone or None, request.project or None
        )
        return resolver, resolver.get_tpu_system_metadata()
    except Exception as error:  # the clients of Google's APIs have families of their own
        hint = (
            "Does it exist and is it READY (gcloud compute tpus tpu-vm list)? Outside of its zone "
            "and project give --tpu_zone and --gcp_project"
            if found.is_named
            else "Is its runtime up, and of TensorFlow 2.15?"
        )
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TPUError(f"{found.source} cannot be reached: {reason}. {hint}") from error


def _topology_of(metadata, found, wanted):
    """Returns the slice that was found, if it is the one that was wanted."""
    hosts, cores = metadata.num_hosts, metadata.num_of_cores_per_host
    if not metadata.num_cores:
        devices = ", ".join(device.name for device in metadata.devices)
        raise TPUError(f"{found.source}: connected, but there is no TPU; devices: {devices}")
    if wanted is None:
        return Topology(f"{hosts}x{cores}", hosts, cores, 0)
    if (hosts, cores) != (wanted.num_hosts, wanted.cores_per_host):
        raise TPUError(
            f"--tpu_topology={wanted.name} has {wanted.num_hosts} hosts of {wanted.cores_per_host} "
            f"cores, but {found.source} has {hosts} of {cores}"
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
