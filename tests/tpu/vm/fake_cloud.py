"""A fake Google Cloud: TPU VMs as folders and processes of this machine.

Its state is a JSON file, so that the fake `gcloud`, a fake API and a test can share it. The home of
a VM is a folder; its processes are those with that HOME. A preemption kills them and deletes it.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess


class CloudError(Exception):
    """An error of the API: HTTP status, status name and message."""

    def __init__(self, code, status, message):
        super().__init__(message)
        self.code, self.status = code, status


QUOTA = (
    429,
    "RESOURCE_EXHAUSTED",
    "Quota limit 'TPUV3sPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 8 in zone "
    "us-central1-a.",
)
CAPACITY = (
    429,
    "RESOURCE_EXHAUSTED",
    'There is no more capacity in the zone "us-central1-a"; you can try in another zone where '
    "Cloud TPU Nodes are offered (see https://cloud.google.com/tpu/docs/regions)",
)
DENIED = (403, "PERMISSION_DENIED", "Permission 'tpu.nodes.create' denied on 'my-project'")
DISABLED = (
    403,
    "PERMISSION_DENIED",
    "Cloud TPU API has not been used in project my-project before or it is disabled.",
)


class FakeCloud:
    """Nodes, queued resources and planned faults, in a folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self._file = self.folder / "cloud.json"

    @contextlib.contextmanager
    def state(self):
        """Yields the state as a dict and saves it; one process at a time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = {"nodes": {}, "queue": {}, "plan": {}, "calls": []}
            if self._file.exists():
                state = json.loads(self._file.read_text())
            yield state
            self._file.write_text(json.dumps(state))

    def plan(self, call, *outcomes):
        """Plans outcomes of the next calls of a kind.

        Args:
          call: "create" and "describe" (errors as (code, status, message)), "ssh" (errors of ssh),
            "again" (errors of a connection that ends: gcloud runs the command again),
            "queue" (states of a queued resource), "boot" (states of a new node before READY),
            "health" (dicts that change the description of a node).
          *outcomes: their outcomes, or None for success.
        """
        with self.state() as state:
            state["plan"].setdefault(call, []).extend(outcomes)

    def next_outcome(self, call):
        """Returns the next planned outcome of a call; None if none is planned."""
        with self.state() as state:
            planned = state["plan"].get(call)
            return planned.pop(0) if planned else None

    def _raise_planned(self, call):
        error = self.next_outcome(call)
        if error:
            raise CloudError(*error)

    def record(self, words):
        """Appends a command line to `calls`."""
        with self.state() as state:
            state["calls"].append(words)

    @property
    def calls(self):
        """The command lines so far."""
        with self.state() as state:
            return state["calls"]

    def home(self, name, worker=0):
        """Returns the home folder of a worker of a VM."""
        return self.folder / "vms" / (f"{name}_{worker}" if worker else name)

    def workers(self, name, worker):
        """Returns the workers that the value of --worker names; "all" of a v5litepod-16 are 4."""
        with self.state() as state:
            kind, _, size = state["nodes"][name]["acceleratorType"].rpartition("-")
        is_several = kind == "v5litepod" and int(size) > 8
        return range(int(size) // 4 if is_several else 1) if worker == "all" else [int(worker)]

    def create(self, name, spec):
        """Creates a node in the state CREATING."""
        self._raise_planned("create")
        with self.state() as state:
            if name in state["nodes"]:
                raise CloudError(409, "ALREADY_EXISTS", f"Resource '{name}' already exists")
            state["nodes"][name] = {
                **spec,
                "name": f"projects/my-project/locations/us-central1-a/nodes/{name}",
                "state": "CREATING",
                "apiVersion": "V2",
                "networkEndpoints": [
                    {"ipAddress": "10.0.0.2", "accessConfig": {"externalIp": "127.0.0.1"}}
                ],
            }
        for worker in self.workers(name, "all"):
            self.home(name, worker).mkdir(parents=True)

    def describe(self, name):
        """Returns a node, which becomes READY after its planned states."""
        self._raise_planned("describe")
        with self.state() as state:
            node = state["nodes"].get(name)
            if node is None:
                place = f"projects/my-project/locations/us-central1-a/nodes/{name}"
                raise CloudError(404, "NOT_FOUND", f"Resource '{place}' was not found")
            if node["state"] in ("CREATING", "REPAIRING"):
                planned = state["plan"].get("boot")
                node["state"] = planned.pop(0) if planned else "READY"
                node["health"] = "HEALTHY"
            planned = state["plan"].get("health")
            return {**node, **(planned.pop(0) if planned else {})}

    def set_state(self, name, node_state, **values):
        """Sets the state of a node."""
        with self.state() as state:
            state["nodes"][name].update(values, state=node_state)

    def preempt(self, name):
        """Preempts a node: its processes and its disk are lost."""
        with self.state() as state:  # who sees that the processes are gone sees the state, too
            self.kill(name)
            state["nodes"][name]["state"] = "PREEMPTED"
            if name in state["queue"]:
                state["queue"][name]["state"] = {"state": "SUSPENDED"}
            shutil.rmtree(self.home(name), ignore_errors=True)

    def delete(self, name):
        """Deletes a node with its disk."""
        self.describe(name)
        with self.state() as state:
            del state["nodes"][name]
        self.kill(name)
        shutil.rmtree(self.home(name), ignore_errors=True)

    def create_queued(self, name, spec):
        """Queues the creation of a node."""
        self._raise_planned("create")
        with self.state() as state:
            if name in state["queue"]:
                raise CloudError(409, "ALREADY_EXISTS", f"Resource '{name}' already exists")
            state["queue"][name] = {"name": name, "state": {"state": "ACCEPTED"}, "spec": spec}

    def describe_queued(self, name):
        """Returns a queued resource; creates its node after the planned states."""
        with self.state() as state:
            if name not in state["queue"]:
                raise CloudError(404, "NOT_FOUND", f"Resource '{name}' was not found")
            queued = state["queue"][name]
            planned = state["plan"].get("queue")
            if planned:
                queued["state"] = {"state": planned.pop(0)}
            elif queued["state"]["state"] != "SUSPENDED":
                queued["state"] = {"state": "ACTIVE"}
            queued, active = dict(queued), queued["state"]["state"] == "ACTIVE"
            exists = name in state["nodes"]
        if active and not exists:
            self.create(name, {**queued["spec"], "queuedResource": name})
        return queued

    def delete_queued(self, name):
        """Deletes a queued resource and its node."""
        with self.state() as state:
            if state["queue"].pop(name, None) is None:
                raise CloudError(404, "NOT_FOUND", f"Resource '{name}' was not found")
            exists = name in state["nodes"]
        if exists:
            self.delete(name)

    def kill(self, name):
        """Kills the processes of a VM."""
        homes = {f"HOME={self.home(name, worker)}".encode() for worker in range(4)}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if homes.intersection((folder / "environ").read_bytes().split(b"\0")):
                    os.kill(int(folder.name), signal.SIGKILL)

    def shell(self, name, command, worker=0):
        """Runs a command on a VM, as ssh does; returns (exit status, output, errors)."""
        error, home = self.next_outcome("ssh"), self.home(name, worker)
        if error or not home.is_dir():
            return 255, "", f"{error or 'ssh: connect to host: Connection refused'}\n"
        environment = {**os.environ, "HOME": str(home)}
        again = self.next_outcome("again")
        if again:
            first = self.shell(name, command)[1][:-5]
            status, out, err = self.shell(name, command)
            return status, first + out, f"{again}\n{err}"
        result = subprocess.run(
            ["bash", "-c", command],
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
        return 255 if result.returncode < 0 else result.returncode, result.stdout, result.stderr
