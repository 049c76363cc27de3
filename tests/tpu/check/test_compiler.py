"""The TPU compiler in a child process: its results and its failures."""

import importlib.util
import os
import pathlib

import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from tpu.check import compiler, pjrt
from tpu.connect import topology

V3_8 = compiler.get_target(topology.find("v3-8"))

needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="libtpu is not installed: Linux, x86-64, Python 3.11 and the 'check' extra",
)


def lower_to_hlo(function, *shapes):
    """Returns the HLO of a function of float32 tensors."""
    with context.eager_mode():
        specs = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
        compiled = tf.function(function, jit_compile=True, input_signature=specs)
        return compiled.experimental_get_compiler_ir(*specs)(stage="hlo_serialized")


@pytest.fixture(scope="module")
def product():
    """The HLO of a product of two matrices."""
    return lower_to_hlo(lambda a, b: tf.matmul(a, b), [256, 128], [128, 512])


@pytest.mark.slow(cost=0.1)
@needs_libtpu
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("v2-8", "v2"),
        ("v3-8", "v3"),
        ("v4-8", "v4"),
        ("v5e-1", "v5 lite"),
        ("v5p-8", "v5"),
        ("v6e-16", "v6 lite"),
    ],
)
def test_matmul_compiles_for_every_generation(product, name, kind):
    compiled = compiler.compile_hlo(product, compiler.get_target(topology.find(name)))
    assert compiled.fits
    assert compiled.compiler == f"libtpu 0.0.34 for TPU {kind}, quick effort"
    assert compiled.flops == pytest.approx(2 * 256 * 128 * 512, rel=0.01)
    assert compiled.memory["argument"] == 4 * (256 * 128 + 128 * 512)
    assert compiled.memory["output"] == 4 * 256 * 512
    assert compiled.optimized


@needs_libtpu
def test_out_of_memory_reports_needed_bytes():
    hlo = lower_to_hlo(lambda x: x + 1, [5 * 2**10, 2**20])  # 20 GiB
    compiled = compiler.compile_hlo(hlo, V3_8)
    assert not compiled.fits
    assert compiled.out_of_memory
    assert 15 * 2**30 < compiled.hbm_limit < 16 * 2**30 < compiled.hbm_needed


@needs_libtpu
def test_invalid_hlo_is_a_compile_error():
    compiled = compiler.compile_hlo(b"this is no HLO", V3_8)
    assert not compiled.fits
    assert not compiled.out_of_memory
    assert compiled.error


@pytest.mark.slow
@needs_libtpu
def test_compiler_supports_every_slice():
    os.environ.update(pjrt.ENVIRONMENT)
    plugin = pjrt.Plugin(compiler.find_library())
    for name in topology.names():
        target = compiler.get_target(topology.find(name))
        _, devices, kind = plugin.topology(target.name, target.megacore)
        assert target.replicas == topology.find(name).num_cores
        assert len(devices) == max(target.replicas, 4)  # a v5e-1 is a part of the smallest
        assert kind.startswith(f"TPU {name[:2]}")


@needs_libtpu
def test_unsupported_api_version_raises(monkeypatch):
    monkeypatch.setattr(pjrt, "OLDEST", (0, 99))
    with pytest.raises(pjrt.PjrtError, match=r"has version 0\.89 of the PJRT API; supported"):
        pjrt.Plugin(compiler.find_library())


def test_missing_libtpu_raises(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(compiler.CompilerUnavailableError, match=r"pip install libtpu==0\.0\.34"):
        compiler.compile_hlo(b"", V3_8)


@pytest.fixture
def child(monkeypatch, tmp_path):
    """Replaces the program of the child process: `child("import os; os.abort()")`."""

    def replace(code):
        path = tmp_path / "child.py"
        path.write_text(code)
        monkeypatch.setattr(pjrt, "__file__", str(path))
        monkeypatch.setattr(compiler, "find_library", lambda: "libtpu.so")

    return replace


def test_compiler_crash_raises(child):
    child("import os, sys; print('check failed', file=sys.stderr, flush=True); os.abort()")
    with pytest.raises(
        compiler.CompilerUnavailableError, match="compiler was killed by SIGABRT: check failed"
    ):
        compiler.compile_hlo(b"", V3_8)


@pytest.mark.parametrize(
    ("status", "how"), [(1, "exited with status 1"), (-7, "SIGBUS"), (-40, "by signal 40")]
)
def test_status_of_the_compiler(status, how):
    assert compiler._how_ended(status).endswith(how)


def test_compiler_timeout_raises(child):
    child("import time; time.sleep(60)")
    with pytest.raises(compiler.CompilerUnavailableError, match=r"was killed after 0\.5 s"):
        compiler.compile_hlo(b"", V3_8, timeout=0.5)


def test_invalid_library_raises(monkeypatch, tmp_path):
    (tmp_path / "libtpu.so").write_text("this is no library")
    monkeypatch.setattr(compiler, "find_library", lambda: str(tmp_path / "libtpu.so"))
    with pytest.raises(compiler.CompilerUnavailableError, match="exited with status 1: OSError"):
        compiler.compile_hlo(b"", V3_8)


def test_child_process_imports_only_the_standard_library():
    source = pathlib.Path(pjrt.__file__).read_text()
    assert "import tensorflow" not in source
    assert "from tpu" not in source
