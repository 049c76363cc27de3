"""Life of a TPU VM: requested, READY, preempted, deleted."""

from __future__ import annotations

import json
import time
from typing import Callable

from tpu.vm import settings
from tpu.vm.gcloud import Gcloud, GcloudError
from tpu.vm.settings import Vm, VmError

READY = "READY"
MISSING = "missing"
# States of https://cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.nodes#State
LOST = (MISSING, "PREEMPTED", "TERMINATED", "DELETING")
_WAITING = ("CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING", "UNHIDING")
_STOPPED = ("STOPPED", "STOPPING", "HIDDEN", "HIDING")
_QUEUE_FAILED = ("FAILED", "SUSPENDING", "SUSPENDED", "DELETING")
_UNHEALTHY = ("TIMEOUT", "UNHEALTHY_TENSORFLOW", "UNHEALTHY_MAINTENANCE")
_CREATE_SECONDS = 3600.0


class NotReadyError(VmError):
    """A VM was lost, or its queued resource failed, before it was READY."""


class Nodes:
    """Creates, watches and deletes the node of a TPU VM, and keeps its record up to date."""

    def __init__(self, vm: Vm, gcloud: Gcloud, poll_seconds: float, sleep: Callable[[float], None]):
        """Initializes without any call; `poll_seconds` is the time between two queries."""
        self.vm, self._gcloud = vm, gcloud
        self._poll_seconds, self._sleep = poll_seconds, sleep
        self._shown, self._belongs_to_queue = None, False

    def describe(self) -> dict:
        """Returns the node as the API describes it, with state "missing" if it does not exist."""
        answer = {"state": MISSING}
        try:
            text = self._gcloud.tpu(
                "tpu-vm", "describe", self.vm.name, "--format=json", assume='{"state": "READY"}'
            )
        except GcloudError as error:
            if error.kind != "not_found":
                raise
        else:
            answer = json.loads(text)
            self._belongs_to_queue = "queuedResource" in answer
        if answer.get("state") == READY:
            self.vm.start_clock(time.time())
        elif answer.get("state") in LOST:
            self.vm.stop_clock(time.time())
        self._save()
        return answer

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
        self._save()
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
        while True:
            node = self.describe()
            state, health = node.get("state"), node.get("health")
            if state == READY and health not in _UNHEALTHY:
                self._show(f"{READY}: {self.vm.type} in {self.vm.zone}")
                return
            if state in _STOPPED:
                raise VmError(
                    f"{self.vm.name} is {state}. Start it: gcloud compute tpus tpu-vm start "
                    f"{self.vm.name} --zone={self.vm.zone}; or delete it: tpu_vm down"
                )
            if state in _WAITING or state == READY:
                reason = node.get("healthDescription") or health or ""
                self._show(_printable(f"{state} {reason}" if state == READY else state))
            elif self.vm.queued and state == MISSING:
                self._check_queue()
            else:
                raise NotReadyError(
                    f"{self.vm.name} is {_printable(str(state))} before it was READY. Try again: "
                    "tpu_vm up"
                )
            self._sleep(self._poll_seconds)

    def delete(self) -> None:
        """Deletes the VM and its queued resource, and waits until they do not exist."""
        if self.vm.queued or self._belongs_to_queue:
            self._ignore_missing("queued-resources", "delete", self.vm.name, "--force")
        else:
            self._ignore_missing("tpu-vm", "delete", self.vm.name)
        while not self._gcloud.dry_run and self.describe()["state"] != MISSING:
            self._sleep(self._poll_seconds)
        self.vm.stop_clock(time.time())
        self._save()

    def _ignore_missing(self, *arguments):
        try:
            self._gcloud.tpu(*arguments, timeout=_CREATE_SECONDS)
        except GcloudError as error:
            if error.kind != "not_found":
                raise

    def _check_queue(self):
        """Prints the state of the queued resource; raises VmError if it cannot become a VM."""
        text = self._gcloud.tpu("queued-resources", "describe", self.vm.name, "--format=json")
        state = json.loads(text).get("state", {})
        name = _printable(str(state.get("state")))
        if name in _QUEUE_FAILED:
            details = json.dumps({key: value for key, value in state.items() if key != "state"})
            raise NotReadyError(
                f"queued resource {self.vm.name} is {name}: {_printable(details)[:300]}. Delete "
                "it: tpu_vm down; then use another zone or type"
            )
        self._show(f"queued: {name}")

    def _show(self, text):
        """Prints a state if it is new."""
        if text != self._shown:
            self._print(text)
        self._shown = text

    def _print(self, text):
        if not self._gcloud.dry_run:
            print(f"{self.vm.name}: {text}", flush=True)

    def _save(self):
        if not self._gcloud.dry_run:
            settings.save(self.vm)


def _printable(text):
    return "".join(character for character in text if character.isprintable())
