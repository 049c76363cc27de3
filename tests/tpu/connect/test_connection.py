"""connect(): finds and checks a TPU, or falls back to GPU or CPU."""

import os

import pytest
import tensorflow as tf

from tpu.connect import address, connection, environment, topology
from tpu.connect.request import Request, TPUError

ADDRESS_VARIABLES = ["TPU_NAME", "TPU_CONFIG", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"]


@pytest.fixture(autouse=True)
def no_tpu(monkeypatch):
    monkeypatch.setattr(address, "local_devices", list)
    for variable in ADDRESS_VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def make_request(tpu="", **changes):
    request = {
        "tpu": tpu,
        "zone": "",
        "project": "",
        "topology": "",
        "use_tpu": "auto",
        "mode": "train",
        "paths": {},
        "batch_sizes": {"train_batch_size": 128},
        **changes,
    }
    return Request(**request)


def connect(tpu="", **changes):
    """Returns the topology of the connection; None for CPU or GPU."""
    with connection.connect(make_request(tpu, **changes)) as found:
        assert found.use_tpu == (found.topology is not None) == (found.resolver is not None)
        return found.topology


def test_auto_without_tpu_prints_one_line(capsys):
    assert connect() is None
    assert capsys.readouterr().out.splitlines() == [
        "no TPU: --tpu and TPU_NAME are unset, no local device; running on GPU or CPU"
    ]


def test_use_tpu_false_does_not_connect(capsys):
    assert connect("grpc://127.0.0.1:1", use_tpu="false") is None
    assert not capsys.readouterr().out


def test_use_tpu_true_without_tpu_raises():
    with pytest.raises(TPUError, match="--use_tpu=true, but there is no TPU"):
        connect(use_tpu="true")


@pytest.mark.parametrize("use_tpu", ["auto", "true"])
def test_missing_local_tpu_raises(use_tpu):
    with pytest.raises(TPUError, match="cannot use a TPU on the same machine"):
        connect("local", use_tpu=use_tpu)


def test_unreachable_tpu_raises_with_auto():
    with pytest.raises(TPUError, match=r"127\.0\.0\.1:1 does not answer"):
        connect("grpc://127.0.0.1:1")


@pytest.mark.parametrize(("name", "expected"), [("", "v3-8"), ("v2-8", "v2-8"), ("1x2", "1x2")])
def test_emulator_accepts_any_slice(name, expected, capsys):
    assert connect("emulator", topology=name) == topology.find(expected)
    assert f"emulating a TPU {expected}" in capsys.readouterr().out


@pytest.mark.parametrize(("num_hosts", "name"), [(1, "v3-8"), (4, "v3-32")])
def test_connect_queries_hosts_and_cores(worker, num_hosts, name, capsys):
    endpoints = [f"127.0.0.1:{worker(num_hosts, 8)}"] * num_hosts
    assert connect(",".join(endpoints), topology=name) == topology.find(name)
    assert "x 8 cores)" in capsys.readouterr().out


def test_tpu_name_variable_is_used_without_flag(worker, monkeypatch):
    monkeypatch.setenv("TPU_NAME", f"grpc://127.0.0.1:{worker(1, 8)}")
    assert connect() == topology.Topology("1x8", 1, 8, 0)


def test_topology_mismatch_raises(worker):
    with pytest.raises(TPUError, match=r"=v3-32 has 4 hosts x 8 cores, but .* has 1 x 8"):
        connect(f"127.0.0.1:{worker(1, 8)}", topology="v3-32")


def test_batch_is_checked_against_the_actual_topology(worker):
    with pytest.raises(TPUError, match="--train_batch_size=100 cannot be divided over 1x8"):
        connect(f"127.0.0.1:{worker(1, 8)}", batch_sizes={"train_batch_size": 100})


class CredentialsError(Exception):
    """Like exceptions of Google's API clients."""


@pytest.mark.parametrize("kind", [RuntimeError, CredentialsError])
def test_unknown_tpu_name_raises_one_error(monkeypatch, kind):
    monkeypatch.setattr(environment, "check_address", lambda *args: [])

    def fail(self, tpu, zone, project):
        assert (tpu, zone, project) == ("mine", "us-central1-b", None)
        raise kind('TPU "mine" is unhealthy: "TIMEOUT"')

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    monkeypatch.setattr(resolver, "__init__", fail)
    with pytest.raises(TPUError, match=r"--tpu=mine cannot be reached: .*TIMEOUT.*--tpu_zone"):
        connect("mine", zone="us-central1-b")


def test_worker_without_tpu_raises(worker):
    with pytest.raises(
        TPUError, match="it has no TPU device; devices: /job:worker/replica:0/task:0/d"
    ):
        connect(f"127.0.0.1:{worker(1, 0)}")


def test_all_findings_are_in_one_message(monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", "TPU")
    with pytest.raises(TPUError) as error:
        connect(
            "mine",
            topology="v3-32",
            mode="train_and_eval",
            paths={"data_dir": "/data", "model_dir": "/model"},
            batch_sizes={"train_batch_size": 100, "eval_batch_size": 7},
            on_one_host=True,
        )
    lines = str(error.value).splitlines()
    assert lines[0] == "cannot use the TPU, 7 problems:"
    assert [line.split(".")[0].strip() for line in lines[1:]] == list("1234567")
    for fact in ("PJRT", "cloud-tpu-client", "--data_dir=/data", "--model_dir=/model"):
        assert fact in str(error.value)
    for fact in ("--train_batch_size=100", "--eval_batch_size=7", "one host only"):
        assert fact in str(error.value)


def test_emulator_ends_with_the_connection():
    before = os.environ.copy()
    with pytest.raises(KeyError), connection.connect(make_request("emulator")):
        raise KeyError
    assert os.environ.copy() == before
    assert connect("emulator") == topology.find("v3-8")
