"""Connects to a TPU: finds its address, checks the environment, queries its topology."""

from __future__ import annotations

import contextlib
import dataclasses
import os

import tensorflow as tf

from tpu import software
from tpu.connect import address, cloud_api, environment, node, topology
from tpu.connect.address import Address
from tpu.connect.request import Request, TPUError
from tpu.connect.topology import Topology
from tpu.emulator import emulator
from tpu.findings import ERROR, Finding, is_unsupported
from tpu.pjrt import devices

_DEFAULT_EMULATED_SLICE = "v3-8"


@dataclasses.dataclass(frozen=True)
class Connection:
    """A TPU to build a TPUEstimator for.

    Attributes:
      topology: the slice; None for CPU or GPU.
      resolver: for `RunConfig(cluster=...)`; None for CPU or GPU.
      is_remote: True if the TPU hosts are not this machine.
      process_id, num_processes: of several processes that train together, one on each host.
    """

    topology: Topology | None = None
    resolver: tf.distribute.cluster_resolver.TPUClusterResolver | None = None
    is_remote: bool = False
    process_id: int = 0
    num_processes: int = 1

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
    wanted = topology.find(request.topology)
    return [Finding(ERROR, "environment", text) for text in _check(request, found, wanted)]


@contextlib.contextmanager
def connect(request: Request):
    """Yields a `Connection` and prints the TPU it uses, in one line.

    Raises:
      TPUError: all findings in one message, before anything is built or written.
    """
    found = _find(request)
    wanted = topology.find(request.topology) if request.topology else None
    if wanted is not None and not wanted.has_infeed and (found is None or found.has_infeed):
        raise TPUError(f"--tpu_topology={request.topology}: {topology.ONLY_PJRT}")
    if found is None:
        yield Connection()
        return
    if found.text == address.PJRT:
        kind = address.later_tpu(os.environ)
        if found.text not in found.source:
            print(f"{found.source}: a TPU {kind} has only PJRT: continuing as with --tpu=pjrt")
        with _connect_devices(request, wanted) as connection:
            yield connection
        return
    if found.text == address.EMULATOR:
        wanted = wanted or topology.find(_DEFAULT_EMULATED_SLICE)
    if found.is_grpc:
        _wait_for_endpoints(request, found)
    _raise_if_any(_check(request, found, wanted))
    with contextlib.ExitStack() as stack:
        if found.text == address.EMULATOR:
            stack.enter_context(emulator.emulate(wanted))
        find_workers = _query_node if found.is_named else _query
        resolver, metadata, node_topology = find_workers(request, found, wanted)
        actual = _actual_topology(metadata, found, wanted, node_topology)
        if wanted is None:
            _raise_if_any(environment.check_topology(request, actual))
        print(_describe(found, actual), flush=True)
        yield Connection(actual, resolver, found.is_remote)


@contextlib.contextmanager
def _connect_devices(request, wanted):
    """Yields the `Connection` to PJRT devices."""
    _raise_if_any(software.find_problems())
    spec = request.devices, request.python, request.hosts
    with _one_line(), devices.run_on_devices(*spec) as (found, all_devices):
        if wanted is not None and wanted.num_cores != found.num_cores:
            raise TPUError(
                f"--tpu_topology={wanted.name} has {wanted.num_cores} cores, but JAX finds "
                f"{found.num_cores} devices"
            )
        _raise_if_any(environment.check_topology(request, found))
        print(devices.describe(all_devices), flush=True)
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        process = all_devices.process_id, all_devices.num_processes
        yield Connection(found, resolver, False, *process)


@contextlib.contextmanager
def _one_line():
    """Converts what the devices do not support to a TPUError."""
    try:
        yield
    except NotImplementedError as error:
        if not is_unsupported(error):
            raise
        raise TPUError(str(error)) from error


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
    findings = software.find_problems()
    if found is not None and found.has_infeed:
        findings += environment.check_address(found)
        findings += environment.check_paths(found, request.paths)
    if wanted is not None:
        findings += environment.check_topology(request, wanted)
    return findings


def _raise_if_any(findings):
    if len(findings) == 1:
        raise TPUError(findings[0])
    if findings:
        lines = [f"  {i}. {finding}" for i, finding in enumerate(findings, start=1)]
        raise TPUError("\n".join([f"cannot use the TPU, {len(findings)} problems:", *lines]))


def _wait_for_endpoints(request, found):
    """Waits until the workers at `found` accept connections, if the request allows to wait."""

    def attempt():
        findings = environment.check_endpoints(found.source, found.endpoints)
        if findings:
            raise node.NotReadyError("a worker does not answer", findings[0])

    if request.wait_minutes:
        cloud_api.wait(attempt, request.wait_minutes, found.source)


def _query_node(request, found, wanted):
    """Returns the resolver of a named TPU, its `TPUSystemMetadata`, and its slice if known."""
    client = cloud_api.NodeClient(
        found, request.zone or found.zone, request.project or found.project
    )

    def attempt():
        answer = client.get()
        findings = node.check_hardware(client.place, answer, wanted)
        kind = node.find_topology(answer)
        if kind is not None and wanted is None:
            findings += environment.check_topology(request, kind)
        _raise_if_any(findings)
        node.check_ready(client.place, answer)
        endpoints = node.endpoints(client.place, answer)
        silent = environment.check_endpoints(found.source, endpoints)
        if silent:
            raise node.NotReadyError("the TPU is READY, but a worker does not answer", silent[0])
        try:
            return answer, client.resolver.get_tpu_system_metadata(), kind
        except Exception as error:  # TensorFlow raises exceptions with no common base
            status = "the TPU is READY, but a worker cannot be reached"
            raise node.NotReadyError(status, str(_unreachable(found, error))) from error

    answer, metadata, kind = cloud_api.wait(attempt, request.wait_minutes, found.source)
    client.follow(answer)
    return client.resolver, metadata, kind


def _query(request, found, wanted):
    """Returns the resolver of a TPU, its `TPUSystemMetadata`, and None."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(found.text)
        return resolver, resolver.get_tpu_system_metadata(), None
    except Exception as error:  # TensorFlow raises exceptions with no common base
        raise _unreachable(found, error) from error


def _unreachable(found, error):
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return TPUError(
        f"{found.source} cannot be reached: {reason}. Check that its runtime is running and "
        "is that of TensorFlow 2.15"
    )


def _actual_topology(metadata, found, wanted, node_topology):
    """Returns the topology of the TPU; raises TPUError if it is not the expected one."""
    hosts, cores = metadata.num_hosts, metadata.num_of_cores_per_host
    if not metadata.num_cores:
        devices = ", ".join(device.name for device in metadata.devices)
        raise TPUError(f"{found.source}: connected, but it has no TPU device; devices: {devices}")
    expected = wanted or node_topology
    if expected is None:
        return Topology(f"{hosts}x{cores}", hosts, cores, 0)
    if (hosts, cores) != (expected.num_hosts, expected.cores_per_host):
        name = f"--tpu_topology={wanted.name}" if wanted else f"{found.source}: a {expected.name}"
        raise TPUError(
            f"{name} has {expected.num_hosts} hosts x {expected.cores_per_host} cores, but "
            f"{found.source} has {hosts} x {cores}"
        )
    return expected


def _describe(found, actual):
    cores = f"{actual.hosts} x {actual.cores_per_host} cores"
    if found.text == address.EMULATOR:
        return (
            f"emulating a TPU {actual.name} ({cores}) on this CPU; not emulated: "
            f"{emulator.NOT_EMULATED}"
        )
    return f"TPU {found.text} ({cores})"
