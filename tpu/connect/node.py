"""The node of a named TPU, as the Cloud TPU API describes it: state, health, endpoints.

Everything in an answer of the API is untrusted: it is checked, shortened and escaped before it is
used or printed. Imports no TensorFlow.
https://cloud.google.com/tpu/docs/reference/rest/v1/projects.locations.nodes
"""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import re

from tpu.connect import topology
from tpu.connect.request import TPUError
from tpu.connect.topology import Topology

READY = "READY"
_WAIT = "Wait until it is READY, such as with --tpu_wait_minutes=30"
_START = "Start it: {start}"
_CREATE = "Delete it and create it again: {delete}"
_DESCRIBE = "See {describe}"
# Meaning of each state, and what to do.
_STATES = {
    "CREATING": ("it is being created", _WAIT),
    "STARTING": ("it is being started", _WAIT),
    "RESTARTING": ("it is restarting", _WAIT),
    "REIMAGING": ("its software is being replaced", _WAIT),
    "REPAIRING": ("it is being repaired", _WAIT),
    "UNHIDING": ("it is being unhidden", _WAIT),
    "STOPPED": ("it has been stopped", _START),
    "STOPPING": ("it is being stopped", _START),
    "PREEMPTED": ("Google Cloud has reclaimed it", _CREATE),
    "TERMINATED": ("maintenance or the limit of a preemptible TPU has ended it", _CREATE),
    "DELETING": ("it is being deleted", "Create it again"),
    "HIDING": ("it is being hidden", _DESCRIBE),
    "HIDDEN": ("it is hidden", _DESCRIBE),
    "UNKNOWN": ("a repair has failed", _CREATE),
    "STATE_UNSPECIFIED": ("its state is unknown", _DESCRIBE),
}
# The same for the health of a READY node. Other values are healthy.
_HEALTHY = ("", "HEALTHY", "HEALTH_UNSPECIFIED")
_HEALTH = {
    "TIMEOUT": ("it does not respond", "Restart it: {stop}, then {start}"),
    "UNHEALTHY_TENSORFLOW": (
        "its TensorFlow runtime is unhealthy",
        "End other programs that use it, or restart it: {stop}, then {start}",
    ),
    "UNHEALTHY_MAINTENANCE": ("it is under maintenance", _WAIT),
    "DEPRECATED_UNHEALTHY": ("it is unhealthy", _DESCRIBE),
}
# Names of runtimes: 2.15.1 (TPU node), tpu-vm-tf-2.15.1[-pod][-se|-pjrt] (TPU VM).
_RUNTIME = re.compile(r"(tpu-vm-tf-)?2\.15(\.\d+)?(-pod)?(-se)?")
# Symptoms after which TPUEstimator's poller ends programs, and for how long it does so.
_OUT_OF_MEMORY, _OUT_OF_MEMORY_SECONDS = ("OUT_OF_MEMORY", "HBM_OUT_OF_MEMORY"), 90
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?Z")
_MAX_TEXT, _MAX_SYMPTOMS = 300, 3


class NotReadyError(TPUError):
    """The TPU cannot be used now, but may be later.

    Attributes:
      status: the reason in a few words, for a line of progress.
    """

    def __init__(self, status: str, message: str):
        super().__init__(message)
        self.status = status


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the Cloud TPU API looks for a node.

    Attributes:
      source: the flag or variable that names the TPU, for messages.
      name, zone, project: of the node.
    """

    source: str
    name: str
    zone: str
    project: str

    @property
    def full_name(self) -> str:
        """The name of the node in the API."""
        return f"projects/{self.project}/locations/{self.zone}/nodes/{self.name}"

    def gcloud(self, verb: str, is_vm: bool = True) -> str:
        """Returns the gcloud command that does `verb` with the TPU."""
        group = "tpus tpu-vm" if is_vm else "tpus"
        return f"gcloud compute {group} {verb} {self.name} {self._flags}"

    def gcloud_list(self) -> str:
        """Returns the gcloud command that lists TPU VMs."""
        return f"gcloud compute tpus tpu-vm list {self._flags}"

    @property
    def _flags(self):
        return f"--zone={self.zone} --project={self.project}"


def text(value: object) -> str:
    """Returns text of an answer or of an error as one short line without control characters."""
    line = " ".join(str(value).split())
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    return line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 3]}..."


def check_ready(place: Place, node: dict) -> None:
    """Raises NotReadyError unless the node can be used; its message says what to do."""
    state, health = text(node.get("state") or "STATE_UNSPECIFIED"), text(node.get("health") or "")
    if state != READY:
        status = f"the TPU is {state}"
        meaning, advice = _STATES.get(state, ("a state that is not in the API v1", _DESCRIBE))
    elif health not in _HEALTHY:
        status = f"the TPU is READY, but its health is {health}"
        meaning, advice = _HEALTH.get(health, ("a health that is not in the API v1", _DESCRIBE))
    elif ran_out_of_memory(node):
        status = f"the TPU ran out of memory less than {_OUT_OF_MEMORY_SECONDS} seconds ago"
        meaning = "TPUEstimator would end this program at once"
        advice = f"Start again after {_OUT_OF_MEMORY_SECONDS} seconds, with a smaller batch"
    else:
        return
    is_vm = node.get("apiVersion") not in ("V1", "V1_ALPHA1")  # these made TPU nodes, not TPU VMs
    verbs = ("start", "stop", "delete", "describe")
    advice = advice.format(**{verb: place.gcloud(verb, is_vm) for verb in verbs})
    details = "".join(f"; {detail}" for detail in _details(node))
    raise NotReadyError(status, f"{place.source}: {status}: {meaning}{details}. {advice}")


def _details(node):
    """Yields the explanations of the API."""
    if node.get("healthDescription"):
        yield text(node["healthDescription"]).rstrip(".")
    for symptom in _symptoms(node)[-_MAX_SYMPTOMS:]:
        worker = f" on worker {text(symptom['workerId'])}" if symptom.get("workerId") else ""
        details = f" ({text(symptom['details']).rstrip('.')})" if symptom.get("details") else ""
        time = f" at {text(symptom['createTime'])}" if symptom.get("createTime") else ""
        yield f"symptom {text(symptom.get('symptomType'))}{worker}{time}{details}"


def _symptoms(node):
    found = node.get("symptoms")
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def with_valid_symptoms(node: dict) -> dict:
    """Returns a node with only those symptoms that TensorFlow's client can read, the newest last.

    A symptom without type or time, or a time without fractions of a second, makes it fail.
    """
    valid = []
    for symptom in _symptoms(node):
        found = _TIME.fullmatch(str(symptom.get("createTime")))
        if found and isinstance(symptom.get("symptomType"), str):
            valid.append({**symptom, "createTime": f"{found[1]}{found[2] or '.0'}Z"})
    return {**node, "symptoms": valid}


def ran_out_of_memory(node: dict) -> bool:
    """Returns True if TPUEstimator's poller ends programs because of a recent symptom."""
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    return any(
        symptom["symptomType"] in _OUT_OF_MEMORY
        and (now - datetime.datetime.fromisoformat(symptom["createTime"][:19])).total_seconds()
        < _OUT_OF_MEMORY_SECONDS
        for symptom in with_valid_symptoms(node)["symptoms"]
    )


def endpoints(place: Place, node: dict) -> list[tuple[str, int]]:
    """Returns (host, port) of each worker of a READY node.

    Raises:
      NotReadyError: it has none.
      TPUError: one is not an IPv4 address and a port.
    """
    found = node.get("networkEndpoints")
    if found is None and node.get("ipAddress"):  # an older field, which TensorFlow reads too
        found = [{"ipAddress": node["ipAddress"], "port": node.get("port")}]
    if not found:
        raise NotReadyError(
            "the TPU is READY, but has no network endpoint",
            f"{place.source}: the TPU is READY, but the Cloud TPU API gives no network endpoint. "
            f"{_WAIT}, or see {place.gcloud('describe')}",
        )
    try:
        pairs = [(entry["ipAddress"], int(entry["port"])) for entry in found]
        for host, port in pairs:
            ipaddress.IPv4Address(host)
            if not 0 < port < 2**16:
                raise ValueError("invalid port")
    except (KeyError, TypeError, ValueError) as error:
        raise TPUError(
            f"{place.source}: the Cloud TPU API gives an invalid network endpoint: {text(found)}. "
            f"See {place.gcloud('describe')}"
        ) from error
    return pairs


def find_topology(node: dict) -> Topology | None:
    """Returns the slice of a node; None if it is none of those that `topology` knows."""
    try:
        return topology.find(text(node.get("acceleratorType")))
    except ValueError:
        return None


def check_hardware(place: Place, node: dict, wanted: Topology | None) -> list[str]:
    """Checks that TPUEstimator can run on a node: generation, slice and runtime."""
    kind, runtime = (
        text(node.get("acceleratorType") or ""),
        text(node.get("tensorflowVersion") or ""),
    )
    if topology.is_later(kind):  # whatever its runtime is
        return [f"{place.source} is a {kind}: {topology.ONLY_PJRT}"]
    findings = []
    if kind and wanted is not None and wanted.hbm_gib and wanted.name != kind:
        findings.append(
            f"--tpu_topology={wanted.name}, but {place.source} is a {kind}. Set the slice of the "
            "TPU, or remove it"
        )
    if runtime and not _RUNTIME.fullmatch(runtime):
        reason = (
            "is a PJRT runtime, which TPUEstimator cannot use"
            if "pjrt" in runtime
            else "is not that of TensorFlow 2.15, which this program runs on"
        )
        findings.append(
            f"the runtime {runtime} of {place.source} {reason}. Create the TPU with "
            "--version=tpu-vm-tf-2.15.1-se, or tpu-vm-tf-2.15.1-pod-se for several hosts"
        )
    return findings
