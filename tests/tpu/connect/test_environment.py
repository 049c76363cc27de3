"""Checks of address, paths, batch sizes and mode."""

import importlib.metadata
import importlib.util
import socket

import pytest

from tpu.connect import address, environment, topology
from tpu.connect.request import Request


def check_address(tpu, environ=None):
    return environment.check_address(address.find(tpu, {}), environ or {})


def test_pypi_wheel_cannot_use_a_local_tpu():
    (finding,) = check_address("local")
    assert "cannot use a TPU on the same machine" in finding
    assert "TENSORFLOW=system" in finding


def test_tpu_image_wheel_can_use_a_local_tpu(monkeypatch, tmp_path):
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
def test_pjrt_runtime_is_unsupported(worker, variable):
    (finding,) = check_address(f"grpc://127.0.0.1:{worker(1, 8)}", variable)
    assert "selects the PJRT runtime" in finding
    assert "on v5e, v5p and v6e use --tpu=pjrt" in finding
    assert next(iter(variable)) in finding


@pytest.mark.parametrize("kind", ["v5litepod-8", "v5p-16", "v6e-8"])
def test_v5_and_later_need_pjrt(worker, kind):
    port = worker(1, 8)
    (finding,) = check_address(f"127.0.0.1:{port}", {"TPU_ACCELERATOR_TYPE": kind})
    assert f"this machine has a TPU {kind}: v5 and later have only the PJRT runtime" in finding
    assert "run_tpu.py --tpu=pjrt" in finding


def test_v3_is_supported(worker):
    assert check_address(f"127.0.0.1:{worker(1, 8)}", {"TPU_ACCELERATOR_TYPE": "v3-8"}) == []


def test_unreachable_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (finding,) = check_address(f"grpc://127.0.0.1:{port}")
    assert f"127.0.0.1:{port} does not answer" in finding


def test_invalid_host_name():
    (finding,) = check_address("10.0.0..2:8470")
    assert "10.0.0..2:8470 does not answer" in finding
    assert "24 hours" in finding


def test_tpu_name_needs_the_client_of_the_cloud_tpu_api(monkeypatch):
    monkeypatch.setattr(environment, "_API_MODULES", ("no_such_module", "json", "nor_this"))
    (finding,) = check_address("mine")
    assert "pip install google-api-python-client 'protobuf<5'" in finding
    assert "tools/setup.sh same cloud" in finding


def test_remote_tpu_needs_cloud_paths():
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
    wanted = Request(
        "", "", "", name, "true", mode, {}, {flag: size}, accumulate_steps, on_one_host
    )
    return environment.check_topology(wanted, topology.find(name))


@pytest.mark.parametrize(
    ("name", "size", "arithmetic", "valid"),
    [
        ("v3-8", 100, "100 / 8 = 12.50", "Use 96 or 104"),
        ("v3-32", 100, "100 / 32 = 3.12", "Use 96 or 128"),
        ("v3-512", 100, "100 / 512 = 0.20", "Use 512"),
    ],
)
def test_indivisible_batch_size(name, size, arithmetic, valid):
    (finding,) = check_topology(name, size=size)
    assert f"--train_batch_size={size} cannot be divided over {name}" in finding
    assert arithmetic in finding
    assert valid in finding


def test_accumulate_steps_count_in_training_only():
    (finding,) = check_topology("v3-8", size=72, accumulate_steps=2)
    assert "72 / 8 x --accumulate_steps=2 = 4.50. Use 64 or 80" in finding
    assert check_topology("v3-8", "eval", 72, 2, "eval_batch_size") == []


def test_divisible_batch_size():
    assert check_topology("v3-32") == check_topology("v4-512", size=512) == []


@pytest.mark.parametrize("mode", ["eval", "train_and_eval", "continuous_eval", "predict"])
def test_multi_host_slice_only_trains(mode):
    (finding,) = check_topology("v3-32", mode, on_one_host=True)
    assert f"--mode={mode} runs on one host only" in finding
    assert "run_cpu.py --mode=" in finding
    assert check_topology("v3-8", mode, on_one_host=True) == []


def test_multi_host_export_needs_noexport_check():
    (finding,) = check_topology("v3-32", "export", on_one_host=True)
    assert "run_cpu.py --mode=export on a CPU or GPU machine, or --noexport_check" in finding
    assert check_topology("v3-32", "export") == []


def test_multi_host_check_needs_only_the_train_batch_size():
    sizes = {"train_batch_size": 4096, "eval_batch_size": 100}
    wanted = Request("", "", "", "v3-256", "true", "check", {}, sizes)
    assert environment.check_topology(wanted, topology.find("v3-256")) == []
    (finding,) = environment.check_topology(wanted, topology.find("v3-8"))
    assert "--eval_batch_size=100" in finding


def test_multi_host_train_and_eval_suggests_continuous_eval():
    (finding,) = check_topology("v3-32", "train_and_eval", on_one_host=True)
    assert "--mode=train here and run_cpu.py --mode=continuous_eval" in finding
