"""Fixtures of the TPU tests."""

import functools
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="session")
def worker():
    """Starts a fake TPU worker, one per size: `worker(num_hosts, cores)` returns its port."""
    processes = []

    @functools.cache
    def start(num_hosts, cores_per_host):
        command = [sys.executable, HERE / "fake_worker.py", str(num_hosts), str(cores_per_host)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        processes.append(process)
        return int(process.stdout.readline())

    yield start
    for process in processes:
        process.kill()
        process.wait()
