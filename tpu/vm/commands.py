"""The commands of tpu_vm: up, push, run, watch, logs, tensorboard, status, stop, down."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import shlex
import subprocess
import sys
import time

from tpu.vm import code, nodes, settings
from tpu.vm.gcloud import ATTEMPTS, PASSING, Gcloud, GcloudError
from tpu.vm.nodes import Nodes, NotReadyError
from tpu.vm.remote import Remote
from tpu.vm.settings import Job, Push, Vm, VmError

# Errors that need the user; all others may end while a VM is created again: the quota of a
# preempted VM is released late, and capacity returns.
_FINAL = ("login", "api", "project", "permission", "invalid", "usage", "missing")
_MAX_FAILURES = 5  # of a VM that is READY, and costs money, but cannot start the program
_MAX_BACK_OFF_SECONDS = 600.0
_MAX_WAIT_SECONDS = 24 * 3600.0
_STOP_SECONDS = 600.0
_END = 2**62  # offset after the end of any log
_IN_CODE = "cd ~/tpu_code; [ ! -f .venv/bin/activate ] || . .venv/bin/activate; "


class _ReplacedError(VmError):
    """Another terminal deleted the VM (`is_deleted`), or stopped or replaced its program."""

    def __init__(self, message, is_deleted=False):
        super().__init__(message)
        self.is_deleted = is_deleted


class Launcher:
    """Carries out commands for one TPU VM."""

    def __init__(self, vm: Vm, dry_run: bool = False, poll_seconds: float = 30.0):
        """Initializes without any call.

        Args:
          vm: the VM.
          dry_run: print the commands of gcloud and git instead of running them.
          poll_seconds: time between two queries, and unit of the back-off after errors.
        """
        self._vm, self._dry_run, self._poll_seconds = vm, dry_run, poll_seconds
        self._gcloud = Gcloud(vm.project, vm.zone, dry_run)
        self._nodes = Nodes(vm, self._gcloud, poll_seconds, time.sleep)
        self._remote = Remote(vm, self._gcloud)
        self._is_in_line = False  # the log was printed without its last newline

    def up(self) -> None:
        """Creates the VM and waits until it is READY; does nothing if it is.

        Raises:
          VmError: quota, capacity, permissions, or a state from which it will not become READY.
        """
        vm = self._vm
        node = {"state": nodes.MISSING} if self._dry_run else self._nodes.describe()
        if node.get("acceleratorType", vm.type) != vm.type:
            raise VmError(
                f"{vm.name} exists with another type: {node['acceleratorType']!r}, not "
                f"--type={vm.type}. Use another --name, or delete it: tpu_vm down"
            )
        if not self._dry_run:
            vm.deleting = False
            self._record("deleting")  # before its creation, so that `down` knows it after Ctrl-C
        try:
            self._make_ready(node["state"])
        except GcloudError as error:
            # A VM that never existed must not stand in the way of other flags.
            is_final = error.kind in (*_FINAL, "quota", "capacity")
            if is_final and not vm.ready_times and not self._exists():
                settings.remove(vm)
            raise

    def _exists(self):
        """Returns False only if there is neither a VM nor a queued resource."""
        try:
            state = self._nodes.describe()["state"]
            return state != nodes.MISSING or self._nodes.queue_state() != ""
        except VmError:
            return True

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

    def push(self, folder: str, setup: str | None, data: str, bucket: str) -> None:
        """Copies code to the VM and data to a bucket, and installs the code's dependencies.

        Args:
          folder: git repository with the code; "" for none.
          setup: command that installs dependencies; None for the default.
          data: folder to copy; "" for none.
          bucket: `gs://bucket/folder` to copy it to.
        """
        if bool(data) != bool(bucket):
            raise VmError("--data and --bucket belong together: a folder, and gs://BUCKET/FOLDER")
        if data and not os.path.isdir(data):
            raise VmError(f"--data={data} is not a folder")
        if bucket and not re.fullmatch(r"gs://[a-z0-9][-.\w]+(/[^\s?#*\[\]]*)?", bucket):
            raise VmError(f"--bucket={bucket} is invalid. Use gs://BUCKET/FOLDER")
        if data:
            project = [f"--project={self._vm.project}"] if self._vm.project else []
            self._print(f"copying {data} to {bucket}")
            sync = ["gcloud", "storage", "rsync", data, bucket, "--recursive", *project, "--quiet"]
            self._gcloud.run(sync, timeout=24 * 3600)
        if not folder:
            return
        self._raise_if_not_ready()
        self._retry(self._raise_if_job_runs)
        self._record()  # creates the folder of the bundle
        commit, left_out = code.bundle(folder, self._vm.bundle, self._gcloud)
        self._print(f"copying {commit}")
        for reason, paths in left_out.items():
            if paths:
                names = ", ".join(paths[:5]) + (", ..." if len(paths) > 5 else "")
                self._print(f"not copied, because {reason}: {names}")
        self._vm.push = Push(commit, code.default_setup(folder) if setup is None else setup)
        self._install()
        self._record("push")

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

    def logs(self, lines: int, follow: bool) -> int:
        """Prints the end of the program's log; with `follow` also each new line."""
        self._raise_if_not_ready()
        end = f"-n {lines} " + ("-F " if follow else "")
        return self._interact(f"tail {end}~/tpu_job/log")

    def tensorboard(self, logdir: str, port: int) -> int:
        """Runs TensorBoard on the VM, and forwards its port to this machine."""
        self._raise_if_not_ready()
        self._print(f"TensorBoard: http://localhost:{port} (Ctrl-C ends it)")
        command = (
            f"exec python3 -m tensorboard.main --logdir={shlex.quote(logdir)} --port={port} "
            "--load_fast=false"
        )
        # -t -t: a terminal on the VM, without which TensorBoard would outlive the connection.
        flags = (f"--ssh-flag=-L {port}:localhost:{port}", "--ssh-flag=-t -t")
        return self._interact(_IN_CODE + command, *flags)

    def status(self) -> None:
        """Prints state, type, cost so far and the state of the program."""
        node = self._nodes.describe()
        vm, state = self._vm, node["state"]
        self._print(f"{state} {node.get('health', '')}".strip() + f", {vm.type} in {vm.zone}")
        if node.get("healthDescription"):
            self._print(nodes.printable(node["healthDescription"]))
        self._print(self._cost() + ("" if vm.price_per_hour else " (cost: set --price_per_hour)"))
        if vm.push:
            self._print(f"code: {vm.push.commit}")
        if vm.job:
            progress = self._remote.poll(_END) if state == nodes.READY else None
            job_state = progress.state if progress else "not running"
            status = f" with status {progress.status}" if job_state == "ended" else ""
            self._print(
                f"program of {vm.job.id}: {job_state}{status}: {shlex.join(vm.job.command)}"
            )

    def stop(self) -> int:
        """Sends SIGTERM to the program and waits until it has saved; returns its exit status."""
        self._raise_if_not_ready()
        if not self._dry_run and self._vm.job:
            self._vm.job.stopped = True  # also if the VM is preempted while the program saves
            settings.update(self._vm, "job")
        if not self._remote.stop() and not self._dry_run:
            raise VmError(f"{self._vm.name}: no program is running. See tpu_vm status")
        status = self._wait_until_stopped()
        if status is None:
            raise self._still_runs()
        return status

    def _wait_until_stopped(self):
        """Returns the exit status of the program; None if it still runs after the time limit."""
        self._print("stopping: the program saves and exits")
        end = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < end and not self._dry_run:
            try:
                progress = self._remote.poll(_END)
                if progress.state != "running":
                    self._print(f"{progress.state} with status {progress.status}")
                    return progress.status
            except GcloudError as error:
                if error.kind not in PASSING:
                    raise
                self._raise_if_lost()
            time.sleep(min(self._poll_seconds, 5.0))
        return 0 if self._dry_run else None

    def _still_runs(self):
        return VmError(
            f"{self._vm.name}: the program still runs {_STOP_SECONDS:.0f} s after SIGTERM. See "
            "tpu_vm logs; tpu_vm down --now deletes the VM all the same"
        )

    def down(self, now: bool) -> None:
        """Stops the program, unless `now`, deletes the VM and checks that it is gone."""
        node = {"state": nodes.READY} if self._dry_run else self._nodes.describe()
        if not self._dry_run:
            self._vm.deleting = True  # `watch` elsewhere must not create it again
            settings.update(self._vm, "deleting")
        if node["state"] == nodes.READY and not now:
            status = 0
            try:
                if self._remote.poll(_END).state == "running" and self._remote.stop():
                    status = self._wait_until_stopped()
            except VmError as error:
                self._print(f"{error}. Deleting it without waiting for the program")
            if status is None:
                raise self._still_runs()
        self._nodes.delete()
        self._print(f"deleted; {self._cost()}")
        if not self._dry_run:
            settings.remove(self._vm)

    def _cost(self):
        """Returns the time for which VMs were READY, and its price, in words."""
        hours, price = self._vm.hours(time.time()), self._vm.price_per_hour
        cost = f", about {hours * price:.2f} at {price:g} per hour" if price else ""
        return f"READY for {hours:.2f} h{cost}"

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
                if kind in _FINAL or failures == _MAX_FAILURES or time.monotonic() > end:
                    cost = "The VM costs money until: tpu_vm down" if is_ready else ""
                    raise VmError(f"{error}. Not resumed. {cost}".rstrip()) from error
                self._print(f"{error}. Next attempt in {back_off:.0f} s")
            time.sleep(back_off)
            back_off = min(2 * back_off, _MAX_BACK_OFF_SECONDS)

    def _install(self):
        """Copies the recorded bundle and installs the dependencies of its code."""
        self._retry(lambda: self._remote.receive(str(self._vm.bundle)))
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

    def _raise_if_not_ready(self):
        state = self._nodes.describe()["state"]
        if state != nodes.READY:
            raise VmError(f"{self._vm.name} is {state}. Run: tpu_vm up")

    def _raise_if_lost(self):
        """Raises NotReadyError if the VM is no longer READY."""
        with contextlib.suppress(GcloudError):
            state = self._nodes.describe()["state"]
            if state != nodes.READY:
                raise NotReadyError(f"{self._vm.name} is {state}. Run: tpu_vm up")

    def _raise_if_job_runs(self):
        if self._remote.poll(_END).state == "running":
            raise VmError(f"{self._vm.name} runs a program. Stop it first: tpu_vm stop")

    def _interact(self, command, *flags):
        """Runs a command on the VM with its output on this terminal; returns its exit status."""
        call = self._remote.command(command, *flags)
        if self._dry_run:
            self._gcloud.run(call)
            return 0
        return subprocess.call(call)

    def _print(self, text):
        if not self._dry_run:
            print("\n" * self._is_in_line + f"{self._vm.name}: {text}", flush=True)
            self._is_in_line = False

    def _record(self, *fields):
        """Writes fields to the record, or a new record of a VM of another machine."""
        if not self._dry_run and not settings.update(self._vm, *fields):
            settings.save(self._vm)
