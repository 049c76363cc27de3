"""Fixtures of the TPU tests."""

import functools
import pathlib
import subprocess
import sys

import pytest

from tests.tpu.fake_cloud import FakeCloud
from tpu.connect import cloud_api

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


@pytest.fixture(scope="session")
def cloud_process(tmp_path_factory):
    """A fake Google Cloud in its own process."""
    with FakeCloud(tmp_path_factory.mktemp("cloud")) as cloud:
        yield cloud


@pytest.fixture
def cloud(cloud_process, monkeypatch):
    """A fake Google Cloud with one READY TPU, "mine"; programs in this process use it."""
    for name, value in cloud_process.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cloud_api, "_POLL_SECONDS", 0.05)
    cloud_process.set(node={})
    return cloud_process
