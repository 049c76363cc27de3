"""Runs the pods of a manifest with a network namespace, an IP address and a host name each.

Linux, as root: `unshare --net --mount python -m tests.pod_network MANIFEST.json FOLDER`. The name
of the parameter server appears late, and it is killed once and comes back with another address.
"""

import json
import pathlib
import signal
import subprocess
import sys
import threading
import time

from tools.local_pods import LocalPods

_SUBNET, _LATE_SECONDS = "10.77.0", 10


class NetworkPods(LocalPods):
    """Pods that find each other by the names in /etc/hosts, which plays the DNS server."""

    def __init__(self, documents, folder):
        """Initializes without starting pods; the volume /runs is a folder."""
        super().__init__(documents, folder / "logs", {"/runs": folder})
        (self.server,) = (name for name in self.names if "-ps-" in name)
        self._late = {self.server}
        self._count = 1
        self._addresses = {}
        self._namespaces = []
        (folder / "hosts").write_text("127.0.0.1 localhost\n")
        _run("mount --make-rprivate /")
        _run(f"mount --bind {folder}/hosts /etc/hosts")
        _run("ip link add br0 type bridge")
        _run(f"ip addr add {_SUBNET}.1/24 dev br0")
        for device in ("lo", "br0"):
            _run(f"ip link set {device} up")

    def _resolve(self, config, ports):
        del ports
        return config

    def start(self, name):
        """Starts a pod in a new network namespace, with a new address."""
        if name in self._late:
            self._late.remove(name)
            command = ["sh", "-c", f"sleep {_LATE_SECONDS}; exit 143"]
            self.processes[name] = subprocess.Popen(command)
            return
        self._count += 1
        namespace = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE
        )
        namespace.stdout.readline()
        self._namespaces.append(namespace)
        inside = f"nsenter --net=/proc/{namespace.pid}/ns/net"
        veth, address = f"veth{self._count}", f"{_SUBNET}.{self._count}"
        _run(f"ip link add {veth} type veth peer name eth0 netns {namespace.pid}")
        _run(f"ip link set {veth} master br0 up")
        _run(f"{inside} ip addr add {address}/24 dev eth0")
        for device in ("lo", "eth0"):
            _run(f"{inside} ip link set {device} up")
        self._addresses[name] = address
        self._write_hosts()
        command, env = self._commands[name]
        self._commands[name] = ([*inside.split(), *command], env)
        super().start(name)
        self._commands[name] = (command, env)

    def kill_server(self):
        """Kills the parameter server; its name disappears until it is back."""
        del self._addresses[self.server]
        self._write_hosts()
        self.processes[self.server].send_signal(signal.SIGKILL)

    def stop(self):
        """Kills all processes."""
        super().stop()
        for namespace in self._namespaces:
            namespace.kill()

    def _write_hosts(self):
        lines = [f"{address} {self.host(name)}\n" for name, address in self._addresses.items()]
        pathlib.Path("/etc/hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))


def _run(command):
    subprocess.run(command.split(), check=True)


def main(manifest, folder):
    """Runs the pods; returns the exit status."""
    folder = pathlib.Path(folder)
    pods = NetworkPods(json.loads(pathlib.Path(manifest).read_text()), folder)

    def kill_in_training():
        while not list(folder.glob("model/model.ckpt-[1-9]*.index")):
            time.sleep(0.05)
        pods.kill_server()

    threading.Thread(target=kill_in_training, daemon=True).start()
    return pods.run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
