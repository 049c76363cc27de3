"""Settings of a TPU VM, validated before `gcloud` is called, and their record on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import math
import os
import pathlib
import re
import typing

from tpu.connect import topology
from tpu.connect.topology import Topology

RECORDS = pathlib.Path(".tpu_vm")
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z]")
_PROJECT = re.compile(r"([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]")
_EMAIL = re.compile(r"[\w.+-]+@[\w.-]+")
_NETWORK = re.compile(r"[a-z][-a-z0-9/.]*")
# TensorFlow 2.15 has two runtimes; TensorFlow 2.16 has no Estimator.
# https://cloud.google.com/tpu/docs/runtimes
_VERSION = re.compile(r"tpu-vm-tf-2\.(?P<minor>\d+)\.\d+(?P<pod>-pod)?(?P<runtime>-se|-pjrt|-v4)?")
# Images for JAX, of slices on which only PJRT runs: Ubuntu 22.04 without TensorFlow, which would
# take the TPU from JAX.
_PJRT_VERSIONS = {"v5e": "v2-alpha-tpuv5-lite", "v5p": "v2-alpha-tpuv5", "v6e": "v2-alpha-tpuv6e"}
_PJRT_VERSION = re.compile(r"(v2-alpha-tpu|tpu-ubuntu)[\w-]+")


class VmError(ValueError):
    """A TPU VM cannot be used as requested: what is wrong, and what to do."""


@dataclasses.dataclass
class Push:
    """Code on a VM.

    Attributes:
      commit: description of the commit.
      setup: command that installs the dependencies; "" for none.
    """

    commit: str
    setup: str


@dataclasses.dataclass
class Job:
    """A program that runs on a VM.

    Attributes:
      id: start time, such as "20261123-151200-123456".
      command: program and arguments.
      max_restarts: restarts on the VM after a failure.
      max_recreations: VMs created again after a preemption.
      stopped: True after `stop`: it is not resumed.
    """

    id: str
    command: list[str]
    max_restarts: int
    max_recreations: int
    stopped: bool = False


@dataclasses.dataclass
class Vm:
    """A TPU VM and what was done with it.

    Attributes:
      name: of the node and of its queued resource.
      zone, project: of Google Cloud.
      type: slice, such as "v3-8".
      version: software version (image).
      queued: request it as a queued resource, which waits for capacity.
      spot, preemptible, reserved: provisioning; at most one.
      service_account, network, subnetwork: "" for the default of the project.
      internal_ips: no external IP addresses.
      startup_script: path of a file on this machine; "" for none.
      price_per_hour: of the whole slice, in any currency; 0 if unknown.
      push, job: the latest ones.
      ready_times: `[start, end]` of each VM in seconds since 1970; end is None while it lives.
      deleting: True from the start of `down`: no command creates it again.
    """

    name: str
    zone: str
    project: str
    type: str
    version: str
    queued: bool = False
    spot: bool = False
    preemptible: bool = False
    reserved: bool = False
    service_account: str = ""
    network: str = ""
    subnetwork: str = ""
    internal_ips: bool = False
    startup_script: str = ""
    price_per_hour: float = 0.0
    push: typing.Optional[Push] = None  # noqa: UP045 (Python 3.9 evaluates it)
    job: typing.Optional[Job] = None  # noqa: UP045
    ready_times: list[list] = dataclasses.field(default_factory=list)
    deleting: bool = False

    @property
    def topology(self) -> Topology:
        """The slice."""
        return topology.find(self.type)

    @property
    def num_workers(self) -> int:
        """Hosts on which code is installed and a program runs.

        TPUEstimator's own runtime runs a program on worker 0, PJRT on all of them.
        """
        return 1 if self.topology.has_infeed else self.topology.num_hosts

    @property
    def bundle(self) -> pathlib.Path:
        """Path of the pushed code on this machine."""
        return RECORDS / f"{self.name}.bundle"

    def start_clock(self, created: float) -> None:
        """Records that a VM created at `created` is READY: it costs money."""
        if not self.ready_times or self.ready_times[-1][1] is not None:
            last_end = self.ready_times[-1][1] if self.ready_times else created
            self.ready_times.append([max(created, last_end), None])

    def stop_clock(self, now: float) -> None:
        """Records that the VM was deleted or preempted."""
        if self.ready_times and self.ready_times[-1][1] is None:
            self.ready_times[-1][1] = now

    def hours(self, now: float) -> float:
        """Returns the hours for which VMs of this record were READY."""
        return sum(max(0.0, (end or now) - start) for start, end in self.ready_times) / 3600


def validate(vm: Vm) -> None:
    """Raises VmError for the first invalid setting."""
    check_name(vm.name)
    for flag, pattern, example in (
        ("zone", _ZONE, "us-central1-a"),
        ("project", _PROJECT, "my-project"),
        ("service_account", _EMAIL, "trainer@my-project.iam.gserviceaccount.com"),
        ("network", _NETWORK, "default"),
        ("subnetwork", _NETWORK, "default"),
    ):
        value = getattr(vm, flag)
        if value and not pattern.fullmatch(value):
            raise VmError(f"--{flag}={value} is invalid. Use a value such as --{flag}={example}")
    if not vm.zone:
        raise VmError(
            "--zone is missing. Set a zone that has the TPU type, such as --zone=us-central1-a "
            "(list: https://cloud.google.com/tpu/docs/regions-zones)"
        )
    chosen = [flag for flag in ("spot", "preemptible", "reserved") if getattr(vm, flag)]
    if len(chosen) > 1:
        raise VmError(f"--{chosen[0]} and --{chosen[1]} exclude each other. Remove one")
    if vm.queued and vm.preemptible:
        raise VmError("--queued does not support --preemptible. Use --spot")
    if not (math.isfinite(vm.price_per_hour) and vm.price_per_hour >= 0):
        raise VmError(f"--price_per_hour={vm.price_per_hour} is not a number of at least 0")
    _check_type_and_version(vm)


def check_name(name: str) -> None:
    """Raises VmError unless `name` is a valid name of a TPU VM."""
    if not _NAME.fullmatch(name):
        raise VmError(
            f"--name={name!r} is invalid. Use lowercase letters, digits and -, at most 63 "
            "characters, the first one a letter"
        )


def default_version(slice_topology: Topology) -> str:
    """Returns the software version (image) on which a TPUEstimator program can use a slice."""
    if not slice_topology.has_infeed:
        return _PJRT_VERSIONS[slice_topology.generation]
    return f"tpu-vm-tf-2.15.1{'-pod' if slice_topology.num_hosts > 1 else ''}-se"


def _check_type_and_version(vm):
    try:
        found = vm.topology
    except ValueError as error:
        raise VmError(f"--type={vm.type}: {error}") from error
    if not found.hbm_gib:
        raise VmError(f"--type={vm.type} is a slice of the emulator. Use one such as v3-8")
    match = _VERSION.fullmatch(vm.version)
    advice = f"Use --version={default_version(found)}"
    if not found.has_infeed:
        if not _PJRT_VERSION.fullmatch(vm.version):
            raise VmError(
                f"--version={vm.version} is not an image for JAX on a {vm.type}. {advice}"
            )
        return
    if not match or (int(match["minor"]) < 15 and match["runtime"] in ("-se", "-pjrt")):
        raise VmError(f"--version={vm.version} is not a TensorFlow image of TPU VMs. {advice}")
    if int(match["minor"]) > 15:
        raise VmError(f"--version={vm.version}: TensorFlow 2.16 and later lack Estimator. {advice}")
    if int(match["minor"]) == 15 and match["runtime"] != "-se":
        raise VmError(
            f"--version={vm.version}: TPUEstimator needs the stream executor runtime (-se). "
            f"{advice}"
        )
    if bool(match["pod"]) != (found.num_hosts > 1):
        raise VmError(f"--version={vm.version} does not fit {vm.type} with {found.hosts}. {advice}")


@contextlib.contextmanager
def lock(name: str, wait: bool = True) -> typing.Iterator[bool]:
    """Holds a lock of the records; yields False if another command holds it and `wait` is False."""
    with contextlib.ExitStack() as stack:
        with _errors_of_records():
            RECORDS.mkdir(exist_ok=True)
            (RECORDS / ".gitignore").write_text("*\n")  # records are of this machine
            file = stack.enter_context(open(RECORDS / f".{name}.lock", "w"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


def save(vm: Vm) -> None:
    """Writes the record of a VM, atomically, to `.tpu_vm/NAME.json`."""
    with lock("_records"):
        _write(vm)


def update(vm: Vm, *fields: str) -> bool:
    """Writes fields of a VM to its record; keeps what other commands wrote to the others.

    Returns:
      False if there is no record, as after `down`; it is not created again.
    """
    with lock("_records"):
        recorded = load(vm.name)
        if recorded is None:
            return False
        for field in fields:
            setattr(recorded, field, getattr(vm, field))
        _write(recorded)
    return True


def _write(vm):
    path = RECORDS / f"{vm.name}.json"
    partial = path.with_suffix(".json.partial")
    with _errors_of_records(), open(partial, "w") as file:
        json.dump(dataclasses.asdict(vm), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
        partial.replace(path)


@contextlib.contextmanager
def _errors_of_records():
    """Converts errors of the file system to VmError."""
    try:
        yield
    except OSError as error:
        raise VmError(
            f"the record in {RECORDS.absolute()} cannot be written: {error.strerror}. Free space, "
            "or use a folder that you may write to"
        ) from error


def remove(vm: Vm) -> None:
    """Deletes the bundle and the record of a VM."""
    vm.bundle.unlink(missing_ok=True)
    (RECORDS / f"{vm.name}.json").unlink(missing_ok=True)


def load(name: str) -> Vm | None:
    """Returns the recorded VM, or None.

    Raises:
      VmError: the record is damaged.
    """
    check_name(name)
    path = RECORDS / f"{name}.json"
    try:
        values = json.loads(path.read_text())
        push, job = values.pop("push"), values.pop("job")
        vm = Vm(**values, push=push and Push(**push), job=job and Job(**job))
        vm.hours(0.0)  # raises for other types
        validate(vm)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise VmError(
            f"{path} is damaged ({error}). Delete the file and give --zone and --project"
        ) from error
    return vm


def only_name() -> str:
    """Returns the name of the only recorded VM.

    Raises:
      VmError: no VM is recorded, or several are.
    """
    names = sorted(path.stem for path in RECORDS.glob("*.json"))
    if len(names) == 1:
        return names[0]
    if names:
        raise VmError(f"--name is missing. Recorded in {RECORDS}: {', '.join(names)}")
    raise VmError(f"--name is missing, and no TPU VM is recorded in {RECORDS.absolute()}")
