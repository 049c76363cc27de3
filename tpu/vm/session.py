"""What the commands of tpu_vm share: a VM, its gcloud, its nodes, its shell, and retries."""

from __future__ import annotations

import contextlib
import time

from tpu.vm import code, nodes, settings
from tpu.vm.gcloud import ATTEMPTS, PASSING, Gcloud, GcloudError
from tpu.vm.nodes import Nodes, NotReadyError
from tpu.vm.remote import Remote
from tpu.vm.settings import Vm, VmError


class Session:
    """One command for one TPU VM."""

    def __init__(self, vm: Vm, dry_run: bool = False, poll_seconds: float = 30.0):
        """Initializes without any call.

        `poll_seconds` is the time between two queries, and the unit of the back-off after errors.
        """
        self._vm, self._dry_run, self._poll_seconds = vm, dry_run, poll_seconds
        self._gcloud = Gcloud(vm.project, vm.zone, dry_run)
        self._nodes = Nodes(vm, self._gcloud, poll_seconds)
        self._remote = Remote(vm, self._gcloud)
        self._is_in_line = False  # the log was printed without its last newline

    def _make_ready(self, state):
        """Creates the VM in a state of MISSING, replaces a lost one, waits until it is READY."""
        is_missing = state == nodes.MISSING
        queue = self._nodes.queue_state() if is_missing and not self._dry_run else ""
        if state in (*nodes.PREEMPTED, "DELETING") or queue in nodes.QUEUE_FAILED:
            self._print(f"{queue or state}: deleting it, to create it again")
            self._nodes.delete()
            is_missing, queue = True, ""
        if is_missing and not queue:
            self._nodes.create()
        self._nodes.wait_until_ready()

    def _install(self):
        """Copies the recorded bundle and installs the dependencies of its code."""
        self._retry(lambda: self._remote.receive(str(self._vm.bundle)))
        if not self._vm.topology.has_infeed:
            self._print("installing JAX for TPUs in ~/pjrt")
            self._remote.set_up(code.JAX_SETUP)
        if self._vm.push.setup:
            self._print(f"installing: {self._vm.push.setup}")
            self._remote.set_up(self._vm.push.setup)

    def _retry(self, call):
        """Calls a function again after errors of the connection: sshd starts after READY."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                call()
                return
            except GcloudError as error:
                if error.kind not in PASSING or attempt == ATTEMPTS:
                    raise
                if error.kind == "ssh":
                    self._raise_if_lost()
                if attempt == 1:
                    self._print(f"{error}. Trying again for {ATTEMPTS} times")
                time.sleep(self._poll_seconds)

    def _raise_if_not_ready(self, kind=VmError):
        state = self._nodes.describe()["state"]
        if state != nodes.READY:
            raise kind(f"{self._vm.name} is {state}. Run: tpu_vm up")

    def _raise_if_lost(self):
        """Raises NotReadyError if the VM is no longer READY."""
        with contextlib.suppress(GcloudError):
            self._raise_if_not_ready(NotReadyError)

    def _print(self, text):
        if not self._dry_run:
            print("\n" * self._is_in_line + f"{self._vm.name}: {text}", flush=True)
            self._is_in_line = False

    def _record(self, *fields):
        """Writes fields to the record, or a new record of a VM of another machine."""
        if not self._dry_run and not settings.update(self._vm, *fields):
            settings.save(self._vm)
