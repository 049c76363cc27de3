"""connect(): finds and checks a TPU, or falls back to GPU or CPU."""

import json
import os

import pytest
import tensorflow as tf

from tpu.connect import address, cloud_api, connection, environment, topology
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


@pytest.mark.slow(cost=0.1)
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


@pytest.mark.parametrize("kind", [RuntimeError, KeyError])
def test_an_unusable_worker_raises_one_error(worker, monkeypatch, kind):
    def fail(self):
        raise kind("no session\nfor you")

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    monkeypatch.setattr(resolver, "get_tpu_system_metadata", fail)
    with pytest.raises(TPUError, match=r"cannot be reached: .*no session.* of TensorFlow 2\.15"):
        connect(f"127.0.0.1:{worker(1, 8)}")


def test_waits_for_endpoints_that_do_not_answer(worker, monkeypatch, capsys):
    address_text, answers = f"127.0.0.1:{worker(1, 8)}", [["down"], ["down"], []]
    check = environment.check_endpoints
    monkeypatch.setattr(cloud_api, "_POLL_SECONDS", 0)
    monkeypatch.setattr(
        environment,
        "check_endpoints",
        lambda *args: answers.pop(0) if answers else check(*args),
    )
    assert connect(address_text, wait_minutes=1).num_cores == 8
    assert "a worker does not answer; waiting, 1 minutes left" in capsys.readouterr().out


def test_worker_without_tpu_raises(worker):
    with pytest.raises(
        TPUError, match="it has no TPU device; devices: /job:worker/replica:0/task:0/d"
    ):
        connect(f"127.0.0.1:{worker(1, 0)}")


def test_all_findings_are_in_one_message(monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", "TPU")
    monkeypatch.setattr(environment, "_API_MODULES", ("no_such_module",))
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
    for fact in ("PJRT", "google-api-python-client", "--data_dir=/data", "--model_dir=/model"):
        assert fact in str(error.value)
    for fact in ("--train_batch_size=100", "--eval_batch_size=7", "one host only"):
        assert fact in str(error.value)


def test_emulator_ends_with_the_connection():
    before = os.environ.copy()
    with pytest.raises(KeyError), connection.connect(make_request("emulator")):
        raise KeyError
    assert os.environ.copy() == before
    assert connect("emulator") == topology.find("v3-8")


@pytest.fixture
def named(cloud, worker):
    """Sets the node of "mine", with a fake worker of 8 cores: `named(state="CREATING")`."""

    def set_node(**fields):
        endpoints = [{"ipAddress": "127.0.0.1", "port": worker(1, 8)}]
        cloud.set(node={"networkEndpoints": endpoints, **fields})

    set_node()
    return set_node


@pytest.mark.parametrize(
    ("tpu", "environ"),
    [
        ("mine", {}),
        ("", {"TPU_NAME": "mine"}),
        ("", {"TPU_CONFIG": '{"tpu_node_name": "mine", "zone": "us-central1-b"}'}),
        ("mine", {"TPU_NAME": "other"}),
    ],
)
def test_a_name_is_resolved_to_its_workers(named, monkeypatch, capsys, tpu, environ):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert connect(tpu) == topology.Topology("1x8", 1, 8, 0)
    assert capsys.readouterr().out == "TPU mine (1 host x 8 cores)\n"


def test_tpu_config_replaces_the_metadata_server(named, cloud, monkeypatch):
    cloud.set(metadata_status=404)
    config = {"tpu_node_name": "mine", "zone": "us-central1-b", "project": "my-project"}
    monkeypatch.setenv("TPU_CONFIG", json.dumps(config))
    assert connect().num_cores == 8


def test_endpoints_of_kubernetes_need_no_api(named, worker, cloud, monkeypatch):
    requests = cloud.count("v1/projects")
    monkeypatch.setenv("TPU_NAME", "mine")
    monkeypatch.setenv("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", f"grpc://127.0.0.1:{worker(1, 8)}")
    assert connect().num_cores == 8
    assert cloud.count("v1/projects") == requests


def test_all_workers_of_a_slice(worker, cloud, capsys):
    port = worker(4, 8)
    cloud.set(node={"networkEndpoints": [{"ipAddress": "127.0.0.1", "port": port}] * 4})
    assert connect("mine", batch_sizes={"train_batch_size": 320}).num_hosts == 4
    assert "TPU mine (4 hosts x 8 cores)" in capsys.readouterr().out


def test_the_node_tells_its_slice(named):
    named(acceleratorType="v2-8")
    assert connect("mine") == topology.find("v2-8")


def test_a_batch_is_checked_before_the_tpu_is_ready(named):
    named(acceleratorType="v2-8", state="CREATING")
    with pytest.raises(TPUError, match="=100 cannot be divided over v2-8"):
        connect("mine", wait_minutes=1, batch_sizes={"train_batch_size": 100})


def test_a_wrong_generation_is_not_waited_for(named):
    named(acceleratorType="v5litepod-8", state="CREATING", tensorflowVersion="v2-alpha-tpuv5-lite")
    with pytest.raises(TPUError, match=r"^--tpu=mine is a v5litepod-8: v5 and later have only"):
        connect("mine", wait_minutes=1)


@pytest.mark.parametrize("tpu", ["", "10.0.0.2:8470"])
def test_a_slice_without_infeed_raises_whatever_the_address(tpu):
    with pytest.raises(TPUError, match=r"^--tpu_topology=v5litepod-8: v5 and later have only"):
        connect(tpu, topology="v5litepod-8")


def test_a_slice_without_infeed_can_be_emulated():
    assert connect("emulator", topology="v5e-4").num_cores == 4


def test_a_slice_of_another_generation_raises(named):
    named(acceleratorType="v2-8")
    with pytest.raises(TPUError, match="--tpu_topology=v3-8, but --tpu=mine is a v2-8"):
        connect("mine", topology="v3-8")


def test_workers_that_differ_from_the_node_raise(named):
    named(acceleratorType="v3-32")
    with pytest.raises(TPUError, match="a v3-32 has 4 hosts x 8 cores, but --tpu=mine has 1 x 8"):
        connect("mine")


def test_a_state_is_one_line(named):
    named(state="CREATING")
    with pytest.raises(TPUError, match=r"^--tpu=mine: the TPU is CREATING: .*--tpu_wait_minutes"):
        connect("mine")


def test_endpoints_of_a_name_are_probed(cloud):
    cloud.set(node={"networkEndpoints": [{"ipAddress": "127.0.0.1", "port": 1}]})
    with pytest.raises(TPUError, match=r"--tpu=mine: 127\.0\.0\.1:1 does not answer"):
        connect("mine")


@pytest.mark.parametrize("name", ["projects/p/locations/z/nodes/n", "a b", "mine?x=1", "mïne"])
def test_an_invalid_name_is_not_looked_up(cloud, name):
    with pytest.raises(TPUError, match=r"is not the name of a TPU\. Use the last part"):
        connect(name)


def test_waits_until_the_tpu_is_ready(named, cloud, capsys, monkeypatch):
    named(state="CREATING")
    polls = []

    def sleep(seconds):
        polls.append(seconds)
        if len(polls) == 2:
            cloud.set(node={"state": "READY"})  # without endpoints
        if len(polls) == 3:
            named()

    monkeypatch.setattr(cloud_api.time, "sleep", sleep)
    assert connect("mine", wait_minutes=5).num_cores == 8
    assert capsys.readouterr().out.splitlines() == [
        "--tpu=mine: the TPU is CREATING; waiting, 5 minutes left",
        "--tpu=mine: the TPU is READY, but has no network endpoint; waiting, 5 minutes left",
        "TPU mine (1 host x 8 cores)",
    ]


def test_a_tpu_that_stays_preempted_is_given_up(named):
    named(state="PREEMPTED")
    with pytest.raises(TPUError, match=r"create it again: gcloud .*Waited 0.002 minutes \(--tpu_w"):
        connect("mine", wait_minutes=0.002)
