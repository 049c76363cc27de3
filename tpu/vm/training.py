"""Runs a program on a TPU VM, and creates the VM again after a preemption."""

from __future__ import annotations

import datetime
import sys
import time

from tpu.vm import nodes, settings
from tpu.vm.gcloud import ATTEMPTS, FINAL, PASSING, GcloudError
from tpu.vm.nodes import NotReadyError
from tpu.vm.session import Session
from tpu.vm.settings import Job, VmError

_MAX_FAILURES = 5  # of a VM that is READY, and costs money, but cannot start the program
_MAX_BACK_OFF_SECONDS = 600.0
_MAX_WAIT_SECONDS = 24 * 3600.0


class _ReplacedError(VmError):
    """Another terminal deleted the VM (`is_deleted`), or stopped or replaced its program."""

    def __init__(self, message, is_deleted=False):
        super().__init__(message)
        self.is_deleted = is_deleted


class Training(Session):
    """The commands `run` and `watch`."""

    def run(self, command: list[str], max_restarts: int, max_recreations: int) -> None:
        """Starts a program on the VM, in the background.

        Args:
          command: program and arguments, with the pushed code as the working folder.
          max_restarts: restarts on the VM after a failure.
          max_recreations: VMs that `watch` creates after a preemption.

        Raises:
          NotReadyError: the VM was lost at the start; `watch` resumes the program.
          VmError: the VM is not READY, has no code, or runs a program.
        """
        if not command:
            raise VmError("no program. Append it: tpu_vm run -- python run_tpu.py --flag=...")
        if self._vm.push is None and not self._dry_run:
            raise VmError(f"{self._vm.name} has no code. Copy it: tpu_vm push")
        now = datetime.datetime.now(datetime.timezone.utc)
        job_id, previous = now.strftime("%Y%m%d-%H%M%S-%f"), self._vm.job
        job = Job(job_id, command, max_restarts, max_recreations)
        self._raise_if_not_ready()
        # Recorded first: a program without a record could not be watched, or resumed.
        self._vm.job = job
        self._record("job")
        try:
            self._retry(lambda: self._remote.start(job))
        except VmError as error:
            if not isinstance(error, (GcloudError, NotReadyError)):  # else it may have started
                self._vm.job = previous
                self._record("job")
            raise
        self._print("started; it survives the connection")

    def watch(self) -> int:
        """Prints the log until the program ends; creates the VM again after a preemption.

        Returns:
          The exit status of the program.

        Raises:
          VmError: there is no program, or it cannot be resumed.
        """
        job = self._vm.job
        if job is None and not self._dry_run:
            raise VmError(f"no program was started on {self._vm.name}. Start one: tpu_vm run")
        offset, recreations, failures = 0, 0, 0
        while True:
            state, queue, progress = nodes.READY, "", None
            try:
                state = self._nodes.describe()["state"]
                if state == nodes.READY:
                    progress = self._remote.poll(offset)
                elif state in nodes.DELETED:
                    queue = self._nodes.queue_state()
                failures = 0
            except GcloudError as error:
                failures += error.kind != "network"  # of this machine: it may last for hours
                if error.kind not in PASSING or failures == ATTEMPTS:
                    raise
                self._nodes.show(f"{error}. The program continues; trying again")
            if self._dry_run:
                return 0
            if progress is not None:
                self._print_log(progress.log)
                offset = progress.offset
                if not progress.is_complete:
                    continue
                if progress.state == "ended" and progress.id == job.id:
                    self._print(f"the program ended with status {progress.status}")
                    return progress.status
            # One command creates the VM again, even if several watch it.
            with settings.lock(self._vm.name, wait=False) as is_alone:
                lost = self._reason_lost(state, queue, progress) if is_alone else ""
                if lost:
                    recreations += 1
                    self._raise_if_given_up(lost, recreations)
                    self._print(f"{lost}. Resuming, {recreations} of {job.max_recreations}")
                    self._recreate()
                    offset = 0
                    continue
            if state != nodes.READY:
                self._nodes.show(state)
            time.sleep(self._poll_seconds)

    def _print_log(self, log):
        """Prints bytes of the program's log as they are: a character may be cut in two."""
        sys.stdout.flush()
        sys.stdout.buffer.write(log)
        sys.stdout.flush()
        if log:
            self._is_in_line = not log.endswith(b"\n")

    def _reason_lost(self, state, queue, progress):
        """Returns why the program has to be started again; "" if it runs, or may run."""
        name, job = self._vm.name, self._vm.job
        if state in nodes.PREEMPTED:
            return f"the VM is {state}"
        if state in nodes.DELETED:
            if queue in nodes.QUEUE_FAILED:  # which deletes a preempted VM
                return f"the queued resource is {queue}"
            if queue:
                return ""
            raise VmError(
                f"{name} was deleted by another command, and is not created again. If you want "
                "it again: tpu_vm up, then tpu_vm run"
            )
        self._nodes.raise_if_stopped(state)
        if progress is None or (progress.state == "running" and progress.id == job.id):
            return ""
        if progress.state == "running" or progress.id > job.id:  # ids are times
            raise VmError(
                f"{name}: another program was started since: {progress.id}. See tpu_vm logs, or "
                "start yours again: tpu_vm run"
            )
        return "the program ended without a status, as after a restart of the VM"

    def _raise_if_given_up(self, lost, recreations):
        """Raises VmError if the program must not be resumed."""
        name, job = self._vm.name, self._vm.job
        self._raise_if_replaced()
        if recreations > job.max_recreations:
            raise VmError(
                f"{name}: {lost}. Not resumed: limit of --max_recreations={job.max_recreations}. "
                "Resume it: tpu_vm watch"
            )

    def _raise_if_replaced(self):
        """Raises _ReplacedError if `down`, `stop` or `run` was called in another terminal."""
        recorded, name = settings.load(self._vm.name), self._vm.name
        if recorded is None or recorded.deleting:
            raise _ReplacedError(
                f"{name} was deleted by tpu_vm down. It is not created again", True
            )
        if recorded.job is None or recorded.job.id != self._vm.job.id:
            raise _ReplacedError(f"{name}: another program was started. Follow it: tpu_vm watch")
        if recorded.job.stopped:
            raise _ReplacedError(f"{name}: the program was stopped. Start it again: tpu_vm run")

    def _recreate(self):
        """Starts the recorded program again: on the VM if it is READY, else on a new one."""
        back_off, end, failures = self._poll_seconds, time.monotonic() + _MAX_WAIT_SECONDS, 0
        while True:
            is_ready = False
            try:
                self._raise_if_replaced()
                self._make_ready(self._nodes.describe()["state"])
                is_ready = True
                self._raise_if_replaced()
                self._install()
                self._remote.start(self._vm.job)
                return
            except _ReplacedError as error:
                if error.is_deleted:  # it may have been created while `down` ran
                    self._nodes.delete()
                raise
            except VmError as error:
                failures += is_ready
                kind = getattr(error, "kind", "")
                if kind in FINAL or failures == _MAX_FAILURES or time.monotonic() > end:
                    cost = "The VM costs money until: tpu_vm down" if is_ready else ""
                    raise VmError(f"{error}. Not resumed. {cost}".rstrip()) from error
                self._print(f"{error}. Next attempt in {back_off:.0f} s")
            time.sleep(back_off)
            back_off = min(2 * back_off, _MAX_BACK_OFF_SECONDS)
