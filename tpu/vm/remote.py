"""Runs commands on a TPU VM over ssh: receives code, starts a job, reads its log, stops it.

A job is a shell script in the folder ~/tpu_job, with its log and exit status; it survives the
connection. It holds a lock while it runs, so that its state is known without guessing from process
numbers.
"""

from __future__ import annotations

import base64
import dataclasses
import re
import shlex

from tpu.vm.gcloud import Gcloud, GcloudError
from tpu.vm.settings import Job, Vm, VmError

# A connection that hangs must end.
_SSH_FLAGS = [
    f"--ssh-flag=-o {option}"
    for option in ("ConnectTimeout=30", "ServerAliveInterval=15", "ServerAliveCountMax=4")
]
REF = "refs/tpu_vm/code"
_COPY_SECONDS, _POLL_SECONDS = 3600.0, 120.0
_MAX_LOG_BYTES = 1024 * 1024
_BEGIN = "tpu_vm begin\n"
_DONE = re.compile(r"\ntpu_vm exit status (\d+)\s*$")
_DONE_SOMEWHERE = re.compile(r"^tpu_vm exit status (\d+)\n", re.MULTILINE)

# $1: maximum number of restarts; $2...: the program. `stop` signals the whole process group: the
# program saves and exits, the script records its status. Statuses without a restart are those of
# --max_restarts of run_tpu.py: success, invalid flags, and signals that ask a program to end.
# Only the script holds the lock (9): processes that the program leaves behind do not.
_JOB_SCRIPT = r"""
echo $$ > ~/tpu_job/pid
mkdir -p ~/tpu_code && cd ~/tpu_code
[ ! -f .venv/bin/activate ] || . .venv/bin/activate
stopping=
trap 'stopping=1' TERM INT HUP
restarts_left=$1; shift
delay=1
while :; do
  "$@" 9>&-
  status=$?
  case $status in 0|2|129|130|141|143) break;; esac
  [ "$restarts_left" -gt 0 ] && [ ! "$stopping" ] || break
  restarts_left=$((restarts_left - 1))
  echo "tpu_vm: the program ended with status $status; restarts left: $restarts_left"
  sleep $delay 9>&-
  [ ! "$stopping" ] || break
  [ $delay -ge 600 ] || delay=$((delay * 2))
done
echo $status > ~/tpu_job/status.partial && mv ~/tpu_job/status.partial ~/tpu_job/status
"""


@dataclasses.dataclass(frozen=True)
class Progress:
    """State of the job on a VM.

    Attributes:
      id: of the job; "-" if there is none.
      state: "running", "ended", "died" (without an exit status, as after a reboot) or "none".
      status: exit status of a job that ended.
      log: bytes of the log from the requested offset on.
      offset: of the end of `log`, in bytes.
      is_complete: True if `log` reaches the end of the log.
    """

    id: str
    state: str
    status: int
    log: bytes
    offset: int
    is_complete: bool


class Remote:
    """Commands on the workers of a TPU VM where TPUEstimator programs run: see `Vm.num_workers`."""

    def __init__(self, vm: Vm, gcloud: Gcloud):
        """Initializes without any call."""
        self._vm, self._gcloud = vm, gcloud
        self._address = ["--internal-ip"] if vm.internal_ips else []

    def shell(self, script: str, timeout: float = 300.0, assume: str = "") -> str:
        """Runs a shell script; returns what it prints.

        gcloud runs the script again, up to 10 times, if the connection ends, so it must be
        idempotent; only the output of the last time counts.

        Raises:
          GcloudError: no connection.
          VmError: the script failed; with the last line it printed.
        """
        done = "code=$?; echo; echo tpu_vm exit status $code"
        command = f"echo {_BEGIN.strip()}; ({script}\n) 2>&1; {done}"
        assume = f"{_BEGIN}{assume}\ntpu_vm exit status 0"
        output = self._gcloud.run(self.command(command), assume, timeout)
        match = _DONE.search(output)
        if not match:
            raise GcloudError("ssh", f"{self._vm.name}: the ssh connection ended early. Try again")
        printed = output[: match.start()].rpartition(_BEGIN)[2]
        if match[1] != "0":
            last = (printed.strip().splitlines() or [f"exit status {match[1]}"])[-1]
            raise VmError(f"{self._vm.name}: {last}")
        return printed

    def _shell_everywhere(self, script, timeout=300.0):
        """Runs a shell script on all workers, as `shell` does; returns what they print, mixed."""
        count = self._vm.num_workers
        if count == 1:
            return self.shell(script, timeout)
        done = "code=$?; echo; echo tpu_vm exit status $code"
        command = self.command(f"({script}\n) 2>&1; {done}", worker="all")
        output = self._gcloud.run(command, "tpu_vm exit status 0\n" * count, timeout)
        statuses = _DONE_SOMEWHERE.findall(output)
        if len(statuses) < count:
            raise GcloudError(
                "ssh",
                f"{self._vm.name}: the ssh connections to {count - len(statuses)} of {count} "
                "workers ended early. Try again",
            )
        printed = _DONE_SOMEWHERE.sub("", output)
        if set(statuses) != {"0"}:
            last = (printed.strip().splitlines() or [f"exit statuses {', '.join(statuses)}"])[-1]
            raise VmError(f"{self._vm.name}: {last}")
        return printed

    def command(self, shell_command: str, *flags: str, worker: str = "0") -> list[str]:
        """Returns the gcloud command line that runs a command on a worker of the VM, or on all."""
        flags = (*self._address, *_SSH_FLAGS, *flags, f"--command={shell_command}")
        return self._gcloud.command("tpu-vm", "ssh", self._vm.name, f"--worker={worker}", *flags)

    def receive(self, bundle: str) -> None:
        """Copies a git bundle to the VM and checks its commit out in ~/tpu_code."""
        copy = f"{self._vm.name}:tpu_code.bundle"
        worker = "0" if self._vm.num_workers == 1 else "all"
        flags = [f"--worker={worker}", *self._address]
        self._gcloud.tpu("tpu-vm", "scp", bundle, copy, *flags, timeout=_COPY_SECONDS)
        self._shell_everywhere(
            "set -e; mkdir -p ~/tpu_code; cd ~/tpu_code; git init -q .; "
            f"git fetch -q ~/tpu_code.bundle {REF}; git checkout -q --force --detach FETCH_HEAD"
        )

    def set_up(self, command: str) -> None:
        """Runs a command that installs dependencies, in ~/tpu_code."""
        self._shell_everywhere(f"cd ~/tpu_code && {{ {command}\n}}", timeout=_COPY_SECONDS)

    def start(self, job: Job) -> None:
        """Starts a job, unless it runs or has ended already.

        Raises:
          VmError: another job is running.
        """
        program = shlex.join([*self._environment(), *job.command])
        job_id = shlex.quote(job.id)
        self._shell_everywhere(
            "for tool in flock setsid; do command -v $tool > /dev/null || "
            "{ echo $tool is missing on the VM. Install util-linux there; exit 1; }; done\n"
            "mkdir -p ~/tpu_job && cd ~/tpu_job && exec 9> lock || exit 1\n"
            f'same=; [ "$(cat id 2> /dev/null)" != {job_id} ] || same=1\n'
            'flock -w 1 9 || { [ "$same" ] && exit 0; '
            "echo 'a program is running. Stop it: tpu_vm stop'; exit 1; }\n"
            '[ ! "$same" ] || [ ! -f status ] || exit 0\n'
            f"rm -f status pid; : > log; echo {job_id} > id\n"
            f"nohup setsid sh -c {shlex.quote(_JOB_SCRIPT)} tpu_job {job.max_restarts:d} {program} "
            ">> log 2>&1 < /dev/null &\n"
            "until [ -s pid ] || ! kill -0 $! 2> /dev/null; do sleep 0.1; done"
        )

    def _environment(self):
        """Returns the beginning of a command line that tells a program its TPU."""
        if not self._vm.topology.has_infeed:
            return []  # JAX finds it, and the other hosts
        if self._vm.topology.num_hosts == 1:
            return ["env", "TPU_NAME=local"]
        # A process that leads several hosts connects to their TPU workers.
        return ["env", f"TPU_NAME={self._vm.name}", "TPU_LOAD_LIBRARY=0"]

    def poll(self, offset: int = 0) -> Progress:
        """Returns the state of the job on worker 0 and its log from byte `offset` on."""
        printed = self.shell(
            "cd ~/tpu_job 2> /dev/null || { echo - none 0 0; exit 0; }\n"
            # The lock is tested first: a job writes its status before it releases the lock.
            "if flock -n -s lock true; then state=died; else state=running; fi\n"
            "[ ! -f status ] || state=ended\n"
            f"size=$(wc -c < log); count=$((size - {offset}))\n"
            f"[ $count -le {_MAX_LOG_BYTES} ] || count={_MAX_LOG_BYTES}\n"
            "echo $(cat id || echo -) $state $(cat status 2> /dev/null || echo 0) $size\n"
            f"[ $count -le 0 ] || tail -c +{offset + 1} log | head -c $count | base64",
            timeout=_POLL_SECONDS,
            assume="- ended 0 0\n",
        )
        head, _, log = printed.partition("\n")
        try:
            job_id, state, status, size = head.split()
            data = base64.b64decode(log)
            end = offset + len(data)
            return Progress(job_id, state, int(status), data, end, end >= int(size))
        except ValueError:
            raise GcloudError(
                "ssh", f"{self._vm.name}: unexpected answer over ssh: {head[:200]!r}. Try again"
            ) from None

    def stop(self) -> bool:
        """Sends SIGTERM to the job's processes; returns False if no job is running."""
        printed = self._shell_everywhere(
            "cd ~/tpu_job 2> /dev/null && ! flock -n -s lock true || { echo none; exit 0; }\n"
            "kill -TERM -- -$(cat pid)"
        )
        return printed.split().count("none") < self._vm.num_workers
