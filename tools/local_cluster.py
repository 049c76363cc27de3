r"""Runs run_cpu.py as a cluster on this machine: a chief, workers, parameter servers, an evaluator.

    python -m tools.local_cluster --workers=2 --ps=1 -- --flagfile=configs/digits.cfg \
      --data_dir=data/digits --model_dir=runs/cluster

Arguments after `--` are flags of run_cpu.py. Every process gets its own TF_CONFIG and log file. A
process that crashes or is killed is restarted.
"""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

from engine.cli import startup

if __name__ == "__main__":
    startup.check(startup.check_environment)

from absl import flags

FLAGS = flags.FlagValues()

flags.DEFINE_integer("workers", 2, "Workers beside the chief.", lower_bound=0, flag_values=FLAGS)
flags.DEFINE_integer("ps", 1, "Parameter servers.", lower_bound=0, flag_values=FLAGS)
flags.DEFINE_bool("evaluator", True, "Whether to start an evaluator.", flag_values=FLAGS)
flags.DEFINE_integer(
    "max_restarts", 10, "Maximum number of restarts, in total.", lower_bound=0, flag_values=FLAGS
)
flags.DEFINE_string("logs", "cluster_logs", "Folder of the logs.", flag_values=FLAGS)

_ROOT = pathlib.Path(__file__).resolve().parent.parent
# Exit statuses without a restart: success, and invalid flags.
_FINAL = (0, 2)


class ProcessGroup:
    """Processes that belong together, by name. One that crashes or is killed is restarted."""

    def __init__(self, commands, log_dir, restarts_all=False, cwd=None):
        """Initializes without starting processes.

        Args:
          commands: `{name: (command line, environment variables to add)}`.
          log_dir: folder of the logs.
          restarts_all: True if one process cannot rejoin the others.
          cwd: working folder of the processes; default: that of this process.
        """
        self.names = list(commands)
        self.processes: dict[str, subprocess.Popen] = {}
        self._commands = commands
        self._log_dir = pathlib.Path(log_dir)
        self._restarts_all = restarts_all
        self._cwd = cwd
        self._restarts_left = 0

    def start(self, name: str) -> None:
        """Starts a process; appends to its log."""
        command, env = self._commands[name]
        self._log_dir.mkdir(parents=True, exist_ok=True)
        with open(self.log(name), "a") as log:
            self.processes[name] = subprocess.Popen(
                command, env={**os.environ, **env}, cwd=self._cwd, stdout=log, stderr=log
            )

    def log(self, name: str) -> pathlib.Path:
        """Returns the path of the log of a process."""
        return self._log_dir / f"{name}.log"

    def may_restart(self, name: str, status: int) -> bool:
        """Returns True if a process that failed is restarted.

        Args:
          name: of the process.
          status: exit status; 128 + signal if a signal killed it.
        """
        del name
        self._restarts_left -= 1
        return status not in _FINAL and self._restarts_left >= 0

    def run(self, max_restarts: int = 0, poll_seconds: float = 0.5) -> int:
        """Runs all processes until they end, and restarts those that fail.

        Returns:
          0 if all succeed; else the exit status of the process that failed, after killing the
          others.
        """
        self._restarts_left = max_restarts
        try:
            for name in self.names:
                self.start(name)
            while True:
                time.sleep(poll_seconds)
                statuses = {name: process.poll() for name, process in self.processes.items()}
                if all(status == 0 for status in statuses.values()):
                    return 0
                for name, status in statuses.items():
                    if status in (None, 0):
                        continue
                    status = status if status > 0 else 128 - status
                    if not self.may_restart(name, status):
                        print(f"{name} exited with status {status}: see {self.log(name)}")
                        return status
                    self._restart(name, status)
                    break
        finally:
            self.stop()

    def _restart(self, name, status):
        which = "all processes" if self._restarts_all else "it"
        print(f"{name} exited with status {status}: restarting {which}", flush=True)
        if self._restarts_all:
            self.stop()
        for each in self.names if self._restarts_all else [name]:
            self.start(each)

    def stop(self) -> None:
        """Kills all processes."""
        for process in self.processes.values():
            process.kill()
            process.wait()


class LocalCluster(ProcessGroup):
    """Processes of one cluster: "chief", "worker-0", "ps-0", "evaluator"."""

    def __init__(self, arguments, log_dir, workers=2, ps=1, evaluator=True):
        """Initializes without starting processes; `arguments` are flags of run_cpu.py."""
        addresses = [f"127.0.0.1:{port}" for port in free_ports(1 + workers + ps)]
        roles = {"chief": addresses[:1], "worker": addresses[1 : 1 + workers]}
        roles["ps"] = addresses[1 + workers :]
        cluster = {role: places for role, places in roles.items() if places}
        names = [f"ps-{i}" for i in range(ps)] + ["chief"]
        names += [f"worker-{i}" for i in range(workers)]
        names += ["evaluator"] if evaluator else []
        command = [sys.executable, str(_ROOT / "run_cpu.py"), *arguments]
        commands = {}
        for name in names:
            role, _, index = name.partition("-")
            config = {"cluster": cluster, "task": {"type": role, "index": int(index or 0)}}
            commands[name] = (command, {"TF_CONFIG": json.dumps(config)})
        # A worker of MultiWorkerMirroredStrategy cannot rejoin the others.
        super().__init__(commands, log_dir, "--strategy=multi_worker_mirrored" in arguments)


def free_ports(count: int) -> list[int]:
    """Returns ports of this machine that are unused now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def main() -> int:
    """Runs the cluster of the command line; returns its exit status."""
    try:
        arguments = FLAGS(sys.argv)[1:]
    except flags.Error as error:
        sys.exit(f"{error}\n{FLAGS.get_help()}")
    cluster = LocalCluster(arguments, FLAGS.logs, FLAGS.workers, FLAGS.ps, FLAGS.evaluator)
    print(f"logs of {', '.join(cluster.names)}: {FLAGS.logs}", flush=True)
    return cluster.run(FLAGS.max_restarts)


if __name__ == "__main__":
    sys.exit(main())
