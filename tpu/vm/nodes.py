"""Life of a TPU VM: requested, READY, preempted, deleted."""

from __future__ import annotations

import calendar
import json
import time

from tpu.vm import settings
from tpu.vm.gcloud import ATTEMPTS, PASSING, Gcloud, GcloudError, printable
from tpu.vm.settings import Vm, VmError

READY = "READY"
MISSING = "missing"
# States of https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.nodes#State
PREEMPTED = ("PREEMPTED", "TERMINATED")
DELETED = (MISSING, "DELETING")
_WAITING = ("CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING", "UNHIDING")
_STOPPED = ("STOPPED", "STOPPING", "HIDDEN", "HIDING")
QUEUE_FAILED = ("FAILED", "SUSPENDING", "SUSPENDED", "DELETING")
_UNHEALTHY = ("TIMEOUT", "UNHEALTHY_TENSORFLOW", "UNHEALTHY_MAINTENANCE")
_CREATE_SECONDS = 3600.0


class NotReadyError(VmError):
    """A VM was lost, or its queued resource failed, before it was READY."""


class Nodes:
    """Creates, watches and deletes the node of a TPU VM, and keeps its record up to date."""

    def __init__(self, vm: Vm, gcloud: Gcloud, poll_seconds: float):
        """Initializes without any call; `poll_seconds` is the time between two queries."""
        self.vm, self._gcloud, self._poll_seconds = vm, gcloud, poll_seconds
        self._shown, self._queue = None, vm.name if vm.queued else ""

    def describe(self) -> dict:
        """Returns the node as the API describes it, with state "missing" if it does not exist."""
        try:
            answer = self._gcloud.describe("tpu-vm", self.vm.name, assume='{"state": "READY"}')
        except GcloudError as error:
            if error.kind != "not_found":
                raise
            answer = {"state": MISSING}
        queue = str(answer.get("queuedResource", "")).rpartition("/")[2]
        if queue:
            settings.check_name(queue)
            self._queue = queue
        if not self._gcloud.dry_run:
            self._record_clock(answer)
        return answer

    def _record_clock(self, node):
        """Records when the VM started and ceased to cost money."""
        vm, now = self.vm, time.time()
        recorded = settings.load(vm.name)
        if recorded is not None:
            vm.ready_times = recorded.ready_times
        before = [list(times) for times in vm.ready_times]
        if node.get("state") == READY:
            vm.start_clock(min(now, _seconds(node.get("createTime"), now)))
        elif node.get("state") in (*PREEMPTED, *DELETED):
            vm.stop_clock(now)
        if recorded is not None and vm.ready_times != before:
            settings.update(vm, "ready_times")

    def create(self) -> None:
        """Requests the VM; returns when it is created, or queued."""
        vm = self.vm
        options = [f"--accelerator-type={vm.type}"]
        options += [
            f"--{name.replace('_', '-')}={getattr(vm, name)}"
            for name in ("service_account", "network", "subnetwork")
            if getattr(vm, name)
        ]
        options += [
            f"--{name.replace('_', '-')}"
            for name in ("spot", "preemptible", "reserved", "internal_ips")
            if getattr(vm, name)
        ]
        if vm.startup_script:
            options.append(f"--metadata-from-file=startup-script={vm.startup_script}")
        if vm.queued:
            options += [f"--runtime-version={vm.version}", f"--node-id={vm.name}", "--async"]
            self._gcloud.tpu("queued-resources", "create", vm.name, *options)
        else:
            self._print(f"creating a {vm.type} in {vm.zone}; this takes minutes")
            options.append(f"--version={vm.version}")
            self._gcloud.tpu("tpu-vm", "create", vm.name, *options, timeout=_CREATE_SECONDS)

    def wait_until_ready(self) -> None:
        """Waits until the VM is READY and healthy; prints each change of state.

        Raises:
          VmError: it will not become READY.
        """
        failures = 0
        while True:
            try:
                node = self.describe()
                if node.get("state") == MISSING and self._queue:
                    self._check_queue()
                failures = 0
            except GcloudError as error:
                failures += 1
                if error.kind not in PASSING or failures == ATTEMPTS:
                    raise
                self.show(f"{error}. Trying again")
                time.sleep(self._poll_seconds)
                continue
            state, health = node.get("state"), node.get("health")
            if state == READY and health not in _UNHEALTHY:
                self.show(f"{READY}: {self.vm.type} in {self.vm.zone}")
                return
            self.raise_if_stopped(state)
            if state in _WAITING or state == READY:
                reason = node.get("healthDescription") or health or ""
                self.show(f"{state} {reason}" if state == READY else state)
            elif not (self._queue and state == MISSING):
                raise NotReadyError(
                    f"{self.vm.name} is {printable(state)} before it was READY. Try again: "
                    "tpu_vm up"
                )
            time.sleep(self._poll_seconds)

    def raise_if_stopped(self, state: str) -> None:
        """Raises VmError in a state that only the user ends."""
        if state in _STOPPED:
            raise VmError(
                f"{self.vm.name} is {state}. Start it: gcloud compute tpus tpu-vm start "
                f"{self.vm.name} --zone={self.vm.zone}; or delete it: tpu_vm down"
            )

    def show(self, state: str) -> None:
        """Prints a state without control characters, if it is new."""
        text = printable(state)
        if text != self._shown:
            self._print(text)
        self._shown = text

    def delete(self) -> None:
        """Deletes the VM and its queued resource, and waits until they do not exist.

        Raises:
          VmError: it still exists after an hour.
        """
        if self._queue:
            self._ignore_missing("queued-resources", "delete", self._queue, "--force")
        # A queued resource is deleted with its VM; a VM of this name may be without one.
        if not self._queue or self._state_after_delete() not in DELETED:
            self._ignore_missing("tpu-vm", "delete", self.vm.name)
        end = time.monotonic() + _CREATE_SECONDS
        while self._state_after_delete() != MISSING:
            if time.monotonic() > end:
                raise VmError(
                    f"{self.vm.name} still exists after its deletion, and may cost money. See "
                    "tpu_vm status, and try again: tpu_vm down"
                )
            time.sleep(self._poll_seconds)
        self.vm.stop_clock(time.time())

    def _state_after_delete(self):
        return MISSING if self._gcloud.dry_run else self.describe().get("state")

    def queue_state(self) -> str:
        """Returns the state of the VM's queued resource; "" if it has none."""
        return str(self._describe_queue().get("state", "")) if self._queue else ""

    def _describe_queue(self):
        """Returns the state of the queued resource with its details; {} if it does not exist."""
        try:
            return self._gcloud.describe("queued-resources", self._queue).get("state", {})
        except GcloudError as error:
            if error.kind != "not_found":
                raise
            return {}

    def _ignore_missing(self, *arguments):
        try:
            self._gcloud.tpu(*arguments, timeout=_CREATE_SECONDS)
        except GcloudError as error:
            if error.kind != "not_found":
                raise

    def _check_queue(self):
        """Prints the state of the queued resource; raises VmError if it cannot become a VM."""
        state = self._describe_queue()
        name = printable(str(state.get("state", MISSING)))
        if name in (MISSING, *QUEUE_FAILED):
            details = json.dumps({key: value for key, value in state.items() if key != "state"})
            raise NotReadyError(
                f"queued resource {self.vm.name} is {name}: {printable(details)[:300]}. Request "
                "it again: tpu_vm up; or use another zone or type"
            )
        self.show(f"queued: {name}")

    def _print(self, text):
        if not self._gcloud.dry_run:
            print(f"{self.vm.name}: {text}", flush=True)


def _seconds(text, default):
    """Returns seconds since 1970 of a time such as "2026-11-23T15:12:00.5Z"."""
    try:
        return float(calendar.timegm(time.strptime(str(text)[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return default
