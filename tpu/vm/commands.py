"""The commands of tpu_vm: up, push, run, watch, logs, tensorboard, status, stop, down."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time

from tpu.vm import code, nodes, settings
from tpu.vm.gcloud import Gcloud, GcloudError
from tpu.vm.nodes import Nodes, NotReadyError
from tpu.vm.remote import Remote
from tpu.vm.settings import Job, Push, Vm, VmError

# Errors that end without help: a VM that still boots, a network that fails for minutes.
_PASSING = ("ssh", "network", "slow")
_ATTEMPTS = 20
# Errors that need the user; all others may end while a VM is created again: the quota of a
# preempted VM is released late, and capacity returns.
_FINAL = ("login", "api", "project", "permission", "invalid", "usage", "missing")
_MAX_BACK_OFF_SECONDS = 600.0
_MAX_WAIT_SECONDS = 24 * 3600.0
_STOP_SECONDS = 600.0
_END = 2**62  # offset after the end of any log
_IN_CODE = "cd ~/tpu_code; [ ! -f .venv/bin/activate ] || . .venv/bin/activate; "


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

    def up(self) -> None:
        """Creates the VM and waits until it is READY; does nothing if it is.

        Raises:
          VmError: quota, capacity, permissions, or a state from which it will not become READY.
        """
        state = nodes.MISSING if self._dry_run else self._nodes.describe()["state"]
        if state in ("PREEMPTED", "TERMINATED", "DELETING"):
            self._print(f"{state}: deleting it, to create it again")
            self._nodes.delete()
            state = nodes.MISSING
        if state == nodes.MISSING:
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
        self._save()  # creates the folder of the bundle
        commit, untracked = code.bundle(folder, self._vm.bundle, self._gcloud)
        self._print(f"copying {commit}")
        if untracked:
            names = ", ".join(untracked[:5]) + (", ..." if len(untracked) > 5 else "")
            self._print(f"not copied, because untracked (git add): {names}")
        self._vm.push = Push(commit, code.default_setup(folder) if setup is None else setup)
        self._install()
        self._save()

    def run(self, command: list[str], max_restarts: int, max_recreations: int) -> None:
        """Starts a program on the VM, in the background.

        Args:
          command: program and arguments, with the pushed code as the working folder.
          max_restarts: restarts on the VM after a failure.
          max_recreations: VMs that `watch` creates after a preemption.
        """
        if not command:
            raise VmError("no program. Append it: tpu_vm run -- python run_tpu.py --flag=...")
        if self._vm.push is None and not self._dry_run:
            raise VmError(f"{self._vm.name} has no code. Copy it: tpu_vm push")
        started = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        job = Job(started, command, max_restarts, max_recreations)
        self._raise_if_not_ready()
        self._retry(lambda: self._remote.start(job))
        self._vm.job = job
        self._save()
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
            state, progress = nodes.READY, None
            try:
                state = self._nodes.describe()["state"]
                if state == nodes.READY:
                    progress = self._remote.poll(offset)
                failures = 0
            except GcloudError as error:
                failures += 1
                if error.kind not in _PASSING or failures == _ATTEMPTS:
                    raise
                if failures == 1:
                    self._print(f"{error}. The program continues; trying again")
            if self._dry_run:
                return 0
            if progress is not None:
                print(progress.log, end="", flush=True)
                offset = progress.offset
                if not progress.is_complete:
                    continue
                if progress.state == "ended" and progress.id == job.id:
                    self._print(f"the program ended with status {progress.status}")
                    return progress.status
            lost = self._reason_lost(state, progress)
            if lost:
                recreations += 1
                if recreations > job.max_recreations:
                    raise VmError(
                        f"{self._vm.name}: {lost}. Not resumed: limit of --max_recreations="
                        f"{job.max_recreations}. Resume it: tpu_vm watch"
                    )
                self._print(f"{lost}. Resuming, {recreations} of {job.max_recreations}")
                self._recreate()
                offset = 0
            elif state != nodes.READY:
                self._nodes.wait_until_ready()
            else:
                time.sleep(self._poll_seconds)

    def logs(self, lines: int, follow: bool) -> int:
        """Prints the end of the program's log; with `follow` also each new line."""
        self._raise_if_not_ready()
        end = f"-n {lines} " + ("-F " if follow else "")
        return self._interact(f"tail {end}~/tpu_job/log")

    def tensorboard(self, logdir: str, port: int) -> int:
        """Runs TensorBoard on the VM, and forwards its port to this machine."""
        self._raise_if_not_ready()
        self._print(f"TensorBoard: http://localhost:{port} (Ctrl-C ends it)")
        command = f"exec tensorboard --logdir={shlex.quote(logdir)} --port={port} --load_fast=false"
        return self._interact(_IN_CODE + command, f"--ssh-flag=-L {port}:localhost:{port}")

    def status(self) -> None:
        """Prints state, type, cost so far and the state of the program."""
        node = self._nodes.describe()
        vm, state = self._vm, node["state"]
        self._print(f"{state} {node.get('health', '')}".strip() + f", {vm.type} in {vm.zone}")
        if node.get("healthDescription"):
            self._print(str(node["healthDescription"]))
        self._print(self._cost() + ("" if vm.price_per_hour else " (cost: set --price_per_hour)"))
        if vm.push:
            self._print(f"code: {vm.push.commit}")
        if vm.job:
            progress = self._remote.poll(_END) if state == nodes.READY else None
            job_state = progress.state if progress else "not running"
            status = f" with status {progress.status}" if job_state == "ended" else ""
            self._print(f"program of {vm.job.id}: {job_state}{status}: {' '.join(vm.job.command)}")

    def stop(self) -> int:
        """Sends SIGTERM to the program and waits until it has saved; returns its exit status."""
        self._raise_if_not_ready()
        self._remote.stop()
        self._print("stopping: the program saves and exits")
        end = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < end and not self._dry_run:
            progress = self._remote.poll(_END)
            if progress.state != "running":
                self._print(f"{progress.state} with status {progress.status}")
                return progress.status
            time.sleep(min(self._poll_seconds, 5.0))
        if self._dry_run:
            return 0
        raise VmError(
            f"{self._vm.name}: the program still runs {_STOP_SECONDS:.0f} s after SIGTERM. See "
            "tpu_vm logs; tpu_vm down --now deletes the VM all the same"
        )

    def down(self, now: bool) -> None:
        """Stops the program, unless `now`, deletes the VM and checks that it is gone."""
        node = {"state": nodes.READY} if self._dry_run else self._nodes.describe()
        if node["state"] == nodes.READY and not now:
            try:
                if self._remote.poll(_END).state == "running":
                    self.stop()
            except GcloudError as error:
                self._print(f"{error}. Deleting it without stopping the program")
        self._nodes.delete()
        self._print(f"deleted; {self._cost()}")
        if not self._dry_run:
            settings.remove(self._vm)

    def _cost(self):
        """Returns the time for which VMs were READY, and its price, in words."""
        hours, price = self._vm.hours(time.time()), self._vm.price_per_hour
        cost = f", about {hours * price:.2f} at {price:g} per hour" if price else ""
        return f"READY for {hours:.2f} h{cost}"

    def _reason_lost(self, state, progress):
        """Returns why the program has to be started again; "" if it runs."""
        if state in nodes.LOST:
            return f"the VM is {state}"
        if progress is None or (progress.state == "running" and progress.id == self._vm.job.id):
            return ""
        if progress.state == "running":
            raise VmError(f"{self._vm.name} runs another program: {progress.id}. See tpu_vm logs")
        return "the program ended without a status, as after a restart of the VM"

    def _recreate(self):
        """Starts the recorded program again: on the VM if it is READY, else on a new one."""
        back_off, end = self._poll_seconds, time.monotonic() + _MAX_WAIT_SECONDS
        while True:
            try:
                self.up()
                self._install()
                self._remote.start(self._vm.job)
                return
            except VmError as error:
                if getattr(error, "kind", "") in _FINAL or time.monotonic() > end:
                    raise
                self._print(f"{error}. Next attempt in {back_off:.0f} s")
                if isinstance(error, NotReadyError):
                    self._nodes.delete()
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
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                call()
                return
            except GcloudError as error:
                if error.kind not in _PASSING or attempt == _ATTEMPTS:
                    raise
                if attempt == 1:
                    self._print(f"{error}. Trying again for {_ATTEMPTS} times")
                time.sleep(self._poll_seconds)

    def _raise_if_not_ready(self):
        state = self._nodes.describe()["state"]
        if state != nodes.READY:
            raise VmError(f"{self._vm.name} is {state}. Run: tpu_vm up")

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
            print(f"{self._vm.name}: {text}", flush=True)

    def _save(self):
        if not self._dry_run:
            settings.save(self._vm)
