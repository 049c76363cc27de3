"""The commands of tpu_vm except run and watch: up, push, logs, tensorboard, status, stop, down."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time

from tpu.vm import code, nodes, settings
from tpu.vm.gcloud import FINAL, PASSING, GcloudError, printable
from tpu.vm.session import Session
from tpu.vm.settings import Push, VmError

_STOP_SECONDS = 600.0
_END = 2**62  # offset after the end of any log
_IN_CODE = "cd ~/tpu_code; [ ! -f .venv/bin/activate ] || . .venv/bin/activate; "


class Launcher(Session):
    """The commands that create, fill, show, stop and delete a VM."""

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
            is_final = error.kind in (*FINAL, "quota", "capacity")
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
        has_infeed = self._vm.topology.has_infeed
        if setup is None:
            setup = code.default_setup(folder, has_infeed)
        self._vm.push = Push(commit, setup)
        self._install()
        self._record("push")
        if not has_infeed:
            options = f"--pjrt_python={code.JAX_PYTHON}"
            self._print(
                f"run it: tpu_vm run -- python run_tpu.py --tpu=pjrt {options} ..., or another "
                f"program: tpu_vm run -- python -m tpu run {options} PROGRAM ..."
            )

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
            self._print(printable(node["healthDescription"]))
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
