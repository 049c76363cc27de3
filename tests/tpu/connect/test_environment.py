"""What keeps a program from a TPU is known before TensorFlow starts."""

import importlib.metadata
import importlib.util
import socket
import sys

import pytest

from tpu.connect import address, environment, topology


def check_address(tpu, environ=None):
    return environment.check_address(address.find(tpu, {}), environ or {})


def test_this_python_and_this_tensorflow_will_do():
    assert environment.check_software() == []


def test_another_python_will_not(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    assert (
        "Python 3.12.1 is unsupported: TensorFlow 2.15 needs 3.9" in environment.check_software()[0]
    )


def test_another_tensorflow_will_not(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.16.1")
    assert (
        "tensorflow 2.16.1 is unsupported: TPUEstimator needs 2.15"
        in environment.check_software()[0]
    )


def test_a_wheel_of_pypi_cannot_drive_the_tpu_of_its_own_machine():
    (finding,) = check_address("local")
    assert "cannot use a TPU on the same machine" in finding
    assert "TENSORFLOW=system" in finding


def test_the_wheel_of_a_tpu_image_can(monkeypatch, tmp_path):
    (tmp_path / "libtensorflow_cc.so.2").write_bytes(b"\0" * 99 + b"TPU_LIBRARY_PATH\0")
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: importlib.machinery.ModuleSpec(name, None, origin=f"{tmp_path}/__init__.py"),
    )
    assert check_address("local") == []
    assert "TPU_LOAD_LIBRARY=0" in check_address("local", {"TPU_LOAD_LIBRARY": "0"})[0]


@pytest.mark.parametrize(
    "variable",
    [
        {"NEXT_PLUGGABLE_DEVICE_USE_C_API": "true"},
        {"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/lib/libtpu.so"},
        {"PJRT_DEVICE": "TPU"},
    ],
)
def test_the_pjrt_runtime_has_no_infeed(worker, variable):
    (finding,) = check_address(f"grpc://127.0.0.1:{worker(1, 8)}", variable)
    assert "selects the PJRT runtime" in finding
    assert next(iter(variable)) in finding


@pytest.mark.parametrize("kind", ["v5litepod-8", "v5p-16", "v6e-8"])
def test_a_v5_or_later_is_refused(worker, kind):
    port = worker(1, 8)
    (finding,) = check_address(f"127.0.0.1:{port}", {"TPU_ACCELERATOR_TYPE": kind})
    assert f"{kind} is unsupported: v5 and later" in finding


def test_a_v3_is_not(worker):
    assert check_address(f"127.0.0.1:{worker(1, 8)}", {"TPU_ACCELERATOR_TYPE": "v3-8"}) == []


def test_an_address_that_does_not_answer_is_found_in_seconds():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (finding,) = check_address(f"grpc://127.0.0.1:{port}")
    assert f"127.0.0.1:{port} does not answer" in finding


def test_a_name_that_no_host_can_have():
    (finding,) = check_address("10.0.0..2:8470")
    assert "10.0.0..2:8470 does not answer" in finding
    assert "24 hours" in finding


def test_a_name_needs_the_client_of_the_cloud_tpu_api():
    (finding,) = check_address("mine")
    assert "googleapiclient and oauth2client" in finding
    assert "pip install cloud-tpu-client" in finding


def test_a_remote_tpu_needs_every_path_in_the_cloud():
    paths = {"data_dir": "/data", "model_dir": "gs://bucket/model", "export_dir": "export"}
    findings = environment.check_paths(address.find("grpc://10.0.0.2", {}), paths)
    assert [finding.split(" is a local")[0] for finding in findings] == [
        "--data_dir=/data",
        "--export_dir=export",
    ]
    assert environment.check_paths(address.find("local", {}), paths) == []


def check_topology(
    name, mode="train", size=128, accumulate_steps=1, flag="train_batch_size", on_one_host=False
):
    return environment.check_topology(
        topology.find(name), mode, {flag: size}, accumulate_steps, on_one_host
    )


@pytest.mark.parametrize(
    ("name", "size", "arithmetic", "valid"),
    [
        ("v3-8", 100, "100 / 8 = 12.50", "Use 96 or 104"),
        ("v3-32", 100, "100 / 32 = 3.12", "Use 96 or 128"),
        ("v3-512", 100, "100 / 512 = 0.20", "Use 512"),
    ],
)
def test_a_batch_that_the_cores_cannot_share(name, size, arithmetic, valid):
    (finding,) = check_topology(name, size=size)
    assert f"--train_batch_size={size} cannot be divided over {name}" in finding
    assert arithmetic in finding
    assert valid in finding


def test_the_parts_of_a_core_count_in_training_alone():
    (finding,) = check_topology("v3-8", size=72, accumulate_steps=2)
    assert "72 / 8 x --accumulate_steps=2 = 4.50. Use 64 or 80" in finding
    assert check_topology("v3-8", "eval", 72, 2, "eval_batch_size") == []


def test_a_batch_that_the_cores_can_share():
    assert check_topology("v3-32") == check_topology("v4-512", size=512) == []


@pytest.mark.parametrize("mode", ["eval", "train_and_eval", "continuous_eval", "predict"])
def test_many_hosts_only_train(mode):
    (finding,) = check_topology("v3-32", mode, on_one_host=True)
    assert f"--mode={mode} runs on one host only" in finding
    assert "run_cpu.py --mode=" in finding
    assert check_topology("v3-8", mode, on_one_host=True) == []


def test_many_hosts_export_what_they_do_not_check_by_predictions():
    (finding,) = check_topology("v3-32", "export", on_one_host=True)
    assert "run_cpu.py --mode=export on a CPU or GPU machine, or --noexport_check" in finding
    assert check_topology("v3-32", "export") == []


def test_a_check_of_many_hosts_asks_for_the_batch_of_training_alone():
    sizes = {"train_batch_size": 4096, "eval_batch_size": 100}
    assert environment.check_topology(topology.find("v3-256"), "check", sizes) == []
    (finding,) = environment.check_topology(topology.find("v3-8"), "check", sizes)
    assert "--eval_batch_size=100" in finding


def test_beside_the_training_of_many_hosts_another_machine_evaluates():
    (finding,) = check_topology("v3-32", "train_and_eval", on_one_host=True)
    assert "--mode=train here and run_cpu.py --mode=continuous_eval" in finding
