"""oneDNN and bfloat16 by the instruction sets of the CPU."""

import platform
import subprocess
import sys

import pytest

import run_cpu
from engine.cli import cpu_kernels, runtime

AVX2 = "fpu sse4_1 avx fma avx2"


@pytest.fixture
def cpu_info(tmp_path):
    """Writes a /proc/cpuinfo with these instruction sets and returns its path."""

    def write(features):
        path = tmp_path / "cpuinfo"
        path.write_text(f"processor : 0\nflags : {features}\n")
        return str(path)

    return write


@pytest.mark.parametrize(
    ("machine", "features", "environ", "expected"),
    [
        ("x86_64", AVX2, {}, {"TF_ENABLE_ONEDNN_OPTS": "1"}),
        ("x86_64", f"{AVX2} avx512f avx512_vnni", {}, {"TF_ENABLE_ONEDNN_OPTS": "1"}),
        ("x86_64", "fpu sse4_1 avx", {}, {}),
        ("aarch64", "asimd bf16", {}, {}),
        ("x86_64", AVX2, {"TF_ENABLE_ONEDNN_OPTS": "0"}, {"TF_ENABLE_ONEDNN_OPTS": "0"}),
    ],
)
def test_onednn_is_enabled_with_avx2(monkeypatch, cpu_info, machine, features, environ, expected):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    cpu_kernels.prefer_onednn(environ, cpu_info(features))
    assert environ == expected


def test_onednn_is_chosen_before_tensorflow_is_imported():
    code = (
        "import os, sys\n"
        "from engine.cli import cpu_kernels, startup, supervisor\n"
        "cpu_kernels.prefer_onednn = lambda: print('tensorflow' in sys.modules)\n"
        "startup.start(['run_cpu.py', '--mode=eval', '--model=mlp', '--dataset=x',"
        " '--data_dir=d', '--model_dir=m'], '', 'engine.cli.flags', 'engine.cli.cpu_flags')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False"]


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("fpu avx2 avx512f avx512_bf16", True),
        ("fpu avx2 avx512f amx_bf16 amx_tile", True),
        ("asimd bf16 i8mm", True),
        ("fpu avx2 avx512f", False),
    ],
)
def test_bfloat16_needs_cpu_instructions(cpu_info, features, expected):
    found = cpu_kernels.cpu_features(cpu_info(features))
    assert runtime.supports_bfloat16(found) is expected


def test_bfloat16_is_assumed_on_an_unknown_cpu(tmp_path):
    assert runtime.supports_bfloat16(cpu_kernels.cpu_features(str(tmp_path / "none")))


AVX512 = f"{AVX2} avx512f avx512_bf16"


@pytest.mark.parametrize(
    ("environ", "features", "variable"),
    [
        ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, AVX512, "ONEDNN_MAX_CPU_ISA"),
        ({"ONEDNN_MAX_CPU_ISA": "sse41"}, AVX512, "ONEDNN_MAX_CPU_ISA"),
        ({"DNNL_MAX_CPU_ISA": "AVX"}, AVX512, "DNNL_MAX_CPU_ISA"),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI_2"}, AVX512, "ONEDNN_MAX_CPU_ISA"),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI_2"}, f"{AVX2} avx_ne_convert", None),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}, AVX512, None),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "DNNL_MAX_CPU_ISA": "AVX2"}, AVX512, None),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2", "TF_ENABLE_ONEDNN_OPTS": "0"}, AVX512, None),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, AVX2, None),  # TensorFlow uses Eigen
        ({}, AVX512, None),
    ],
)
def test_a_limit_of_onednn_can_leave_no_bfloat16_kernels(cpu_info, environ, features, variable):
    fault = cpu_kernels.explain_bfloat16_fault(environ, cpu_info(features))
    assert (fault is None) == (variable is None)
    assert fault is None or f"{variable}={environ[variable]}" in fault


def test_bfloat16_without_kernels_is_an_error_before_model_dir_exists(
    monkeypatch, exit_status, tiny_flags, tmp_path, capsys
):
    monkeypatch.setattr(cpu_kernels, "explain_bfloat16_fault", lambda: "no kernels. Unset X")
    model_dir = tmp_path / "model"
    flags = ["--mode=train", "--train_steps=1", "--precision=bfloat16", f"--model_dir={model_dir}"]
    assert exit_status(run_cpu, *tiny_flags, *flags) == 2
    assert "--precision=bfloat16: no kernels. Unset X" in capsys.readouterr().err
    assert not model_dir.exists()
