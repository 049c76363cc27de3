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


class LocalCluster:
    """Processes of one cluster, by name: "chief", "worker-0", "ps-0", "evaluator"."""

    def __init__(self, arguments, log_dir, workers=2, ps=1, evaluator=True):
        """Initializes without starting processes; `arguments` are flags of run_cpu.py."""
        self._command = [sys.executable, str(_ROOT / "run_cpu.py"), *arguments]
        self._log_dir = pathlib.Path(log_dir)
        ports = _free_ports(1 + workers + ps)
        addresses = [f"127.0.0.1:{port}" for port in ports]
        roles = {"chief": addresses[:1], "worker": addresses[1 : 1 + workers]}
        roles["ps"] = addresses[1 + workers :]
        self._cluster = {role: places for role, places in roles.items() if places}
        self.names = [f"ps-{i}" for i in range(ps)] + ["chief"]
        self.names += [f"worker-{i}" for i in range(workers)]
        self.names += ["evaluator"] if evaluator else []
        self.processes: dict[str, subprocess.Popen] = {}
        # A worker of MultiWorkerMirroredStrategy cannot rejoin the others.
        self._restarts_all = "--strategy=multi_worker_mirrored" in arguments

    def start(self, name: str) -> None:
        """Starts a process; appends to its log."""
        kind, _, index = name.partition("-")
        task = {"type": kind, "index": int(index or 0)}
        config = json.dumps({"cluster": self._cluster, "task": task})
        self._log_dir.mkdir(parents=True, exist_ok=True)
        with open(self.log(name), "a") as log:
            self.processes[name] = subprocess.Popen(
                self._command, env={**os.environ, "TF_CONFIG": config}, stdout=log, stderr=log
            )

    def log(self, name: str) -> pathlib.Path:
        """Returns the path of the log of a process."""
        return self._log_dir / f"{name}.log"

    def run(self, max_restarts: int, poll_seconds: float = 0.5) -> int:
        """Runs all processes until they end, and restarts those that fail.

        Returns:
          0 if all succeed; else the exit status of the process that failed, after killing the
          others.
        """
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
                    if status in _FINAL or not max_restarts:
                        print(f"{name} exited with status {status}: see {self.log(name)}")
                        return status if status > 0 else 128 - status
                    max_restarts -= 1
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


def _free_ports(count):
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
