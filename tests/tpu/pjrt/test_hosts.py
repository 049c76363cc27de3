"""TPUEstimator programs on several hosts: one process with CPU devices for each."""

import contextlib
import pathlib
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
import tensorflow as tf

from tests import numerics
from tests.tpu.emulator import tiny
from tools.local_cluster import free_ports
from tpu.connect import topology
from tpu.connect.request import Hosts, TPUError
from tpu.emulator import emulator
from tpu.pjrt import worker
from tpu.pjrt.cores import PJRTCores

ROOT = pathlib.Path(__file__).parents[3]
STEPS, LOOP = 12, 4  # of program_of_hosts.py


def train(folders, *arguments, steps=STEPS, devices=8):
    """Runs program_of_hosts.py, on one host per folder; returns (status, output) of each."""
    command = [sys.executable, "-m", "tpu", "run", f"--devices=cpu:{devices // len(folders)}"]
    if len(folders) > 1:
        (port,) = free_ports(1)
        command += [f"--pjrt_coordinator=localhost:{port}", f"--pjrt_hosts={len(folders)}"]
    processes = []
    for host, folder in enumerate(folders):
        options = [f"--pjrt_host_id={host}"] if len(folders) > 1 else []
        program = ["tests/tpu/pjrt/program_of_hosts.py", str(folder), str(steps), *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        processes.append(subprocess.Popen([*command, *options, *program], cwd=ROOT, **pipes))
    outputs = [process.communicate()[0] for process in processes]
    return [(process.returncode, output) for process, output in zip(processes, outputs)]


def error_line(output):
    """Returns the error, which must be one line."""
    (line,) = [line for line in output.splitlines() if line.startswith("tpu: error: ")]
    return line


def variables(folder):
    reader = tf.train.load_checkpoint(str(folder))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.fixture(scope="module")
def jax():
    module = pytest.importorskip("jax", reason="the extra 'pjrt' is not installed")
    if module.__version_info__ < (0, 4, 34):
        pytest.skip("CPU devices of several processes need jax 0.4.34")


@pytest.mark.slow
@pytest.mark.numeric
def test_two_hosts_train_as_one(jax, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folders in ([one], [two, two]):
        ended = train(folders)
        assert [status for status, _ in ended] == [0] * len(folders), ended
    for host, (_, output) in enumerate(ended):
        assert f"input of host {host} of 2" in output
        assert output.count("input of host") == 1
    # host_call has run on host 0, with the losses of all cores.
    expected, losses = (np.loadtxt(folder / "losses.txt") for folder in (one, two))
    assert losses.shape == (STEPS, 1 + 8)
    numerics.assert_close(losses, expected, terms=32, depth=STEPS * 4)
    expected, found = variables(one), variables(two)
    assert found["global_step"] == STEPS
    for name, value in expected.items():
        numerics.assert_close(found[name], value, terms=32, depth=STEPS * 4, name=name)
    # One writer: the files of one host.
    files = [sorted(path.name.split(".")[0] for path in folder.iterdir()) for folder in (one, two)]
    assert files[0] == files[1]


@pytest.mark.slow
def test_hosts_end_together(jax, tmp_path):
    """A stop, SIGKILL and different checkpoints; the training resumes from the last one."""
    folder = tmp_path / "run"
    ended = train([folder, folder], "1", str(LOOP), "stop")  # on host 1
    assert [status for status, _ in ended] == [0, 0], ended
    assert variables(folder)["global_step"] == LOOP
    (status, output), (killed, _) = train([folder, folder], "1", str(2 * LOOP), "kill")
    assert (status, killed) == (1, -9)
    assert "Host 1 has ended without a message, as by SIGKILL" in error_line(output)
    assert "Checkpoints are kept" in error_line(output)
    # Host 1 reads another folder.
    step = variables(folder)["global_step"]
    assert LOOP <= step <= 2 * LOOP
    for status, output in train([folder, tmp_path / "other"], steps=3 * LOOP):
        assert status == 1
        expected = f"The hosts are at different steps (host 0: {step}, host 1: 0)"
        assert expected in error_line(output)
    ended = train([folder, folder])
    assert [status for status, _ in ended] == [0, 0], ended
    assert variables(folder)["global_step"] == STEPS


class BuiltError(Exception):
    """The graph of a training has been built, and its loop would begin."""


class FakeDevices:
    """Those of host 1 of two, which have no worker."""

    num_processes, process_id, num_local, num_global, num_outfeed = 2, 1, 2, 4, 0

    def load(self, program):
        return 0

    def begin(self, *arguments):
        raise BuiltError


@pytest.mark.parametrize("per_host", [1, 2, 3], ids=["per_core", "per_host_v1", "per_host_v2"])
def test_a_host_reads_its_input_only(tmp_path, per_host):
    hosts = []

    def input_fn(params):
        context = params["context"]
        hosts.append((context.current_host, context.num_hosts))
        dataset = tiny.numbers(params)
        if per_host == 1:
            return tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        return dataset

    config = tiny.config(tmp_path, {"per_host_input_for_training": per_host})
    cores = emulator.emulate(topology.find("2x2"), PJRTCores(FakeDevices()))
    with cores, pytest.raises(Exception, match="BuiltError"):
        tiny.estimator(config).train(input_fn, max_steps=4)
    assert hosts == [(1, 2)] * (2 if per_host == 1 else 1)
    assert not any(tmp_path.iterdir())  # host 1 writes nothing


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"per_host_input_for_training": 4}, "do not share batches"),
        ({"iterations_per_loop": "10s"}, "iterations_per_loop cannot be a time"),
    ],
)
def test_not_supported_on_several_hosts(tmp_path, options, expected):
    config = tiny.config(tmp_path, options)
    cores = emulator.emulate(topology.find("2x2"), PJRTCores(FakeDevices()))
    with cores, pytest.raises(NotImplementedError, match=expected):
        tiny.estimator(config).train(tiny.numbers, max_steps=4)


class Store:
    """The key-value store of `jax.distributed`, of one process."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()
        self.is_asked = threading.Event()

    def key_value_set(self, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def blocking_key_value_get(self, key, timeout_ms):
        del timeout_ms
        self.is_asked.set()
        with self.changed:
            self.changed.wait_for(lambda: key in self.values)
            return self.values[key]

    def key_value_delete(self, folder):
        with self.changed:
            self.values = {k: v for k, v in self.values.items() if not k.startswith(f"{folder}/")}


@pytest.fixture
def store(monkeypatch):
    found = Store()
    state = types.SimpleNamespace(client=found, process_id=1, num_processes=3)
    module = types.SimpleNamespace(global_state=state)
    monkeypatch.setitem(sys.modules, "jax._src.distributed", module)
    monkeypatch.setattr(worker, "_GRACE_SECONDS", 0.0)
    monkeypatch.setattr(worker.os, "_exit", sys.exit)
    return found


def test_decisions_of_hosts(store):
    """Host 0 decides for all, in each of many rounds; it removes old values from the store."""
    wanted = [[False, i == 7, False] for i in range(9)]
    decided = [None] * 3

    def run(host_id):
        host = worker.Hosts(host_id, 3, None)
        decided[host_id] = [host.agree(values[host_id], any) for values in wanted]

    threads = [threading.Thread(target=run, args=(host_id,)) for host_id in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert decided == [[i == 7 for i in range(9)]] * 3
    assert len(store.values) == 3


def test_the_end_of_a_host_is_reported_once_it_is_needed(store):
    reports, ended = [], threading.Event()
    hosts = worker.Hosts(0, 2, reports.append)
    with pytest.raises(SystemExit):
        worker._exit(1, "has failed\n(an error)")
    while not hosts.ended:
        ended.wait(0.01)
    assert not reports
    hosts.need()
    assert reports == ["Host 1 has failed (an error)"]


def test_host_0_ends_after_the_others_have_reported(store, monkeypatch):
    """JAX ends the workers that lose the store, which is in the process of host 0."""
    monkeypatch.setattr(worker, "_LEAVE_SECONDS", None)  # wait however long it takes
    events = []

    def end(host_id):
        state = types.SimpleNamespace(client=store, process_id=host_id, num_processes=3)
        monkeypatch.setattr(sys.modules["jax._src.distributed"], "global_state", state)
        with pytest.raises(SystemExit):
            worker._exit(1, report=lambda: events.append(host_id))

    monkeypatch.setattr(worker, "_ending", contextlib.nullcontext())  # three processes in one
    first = threading.Thread(target=end, args=(0,))
    first.start()
    store.is_asked.wait()
    end(2)
    assert events == [2]
    end(1)
    first.join()
    assert events == [2, 1, 0]


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([[4, ["x"], [True, False]], [4, ["x"], [True, True]]], ("", [True, False])),
        ([[4, ["x"], []], [8, ["x"], []]], "different steps (host 0: 4, host 1: 8)"),
        ([[4, ["x"], []], [4, ["y"], []]], "different programs"),
    ],
)
def test_hosts_begin_a_loop(hosts, expected):
    """Host 0 decides which state is given."""
    found = worker._decide_begin(hosts)
    assert found == expected or expected in found[0]


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (Hosts("a:1", 2), "need --pjrt_coordinator, --pjrt_hosts and --pjrt_host_id"),
        (Hosts(number=2, id=1), "need --pjrt_coordinator"),
        (Hosts("a", 2, 0), "--pjrt_coordinator=a must be HOST:PORT"),
        (Hosts("a:1", 2, 2), "--pjrt_host_id=2 must be in 0 to 1"),
    ],
)
def test_invalid_hosts(hosts, expected):
    with pytest.raises(TPUError, match=expected):
        hosts.check()


def test_valid_hosts():
    for hosts in (Hosts(), Hosts(number=1), Hosts("a:1", 2, 0)):
        hosts.check()


def test_hosts_of_a_slice(monkeypatch):
    """GKE names them; a program for other devices does not ask."""
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "a,b")
    for platform, expected in {"": True, "tpu": True, "cpu": False, "gpu": False}.items():
        assert worker._is_on_slice(platform) == expected
