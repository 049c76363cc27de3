"""CPU instruction sets, and oneDNN kernels, which are chosen before TensorFlow is imported."""

from __future__ import annotations

import os
import pathlib
import platform
from collections.abc import MutableMapping

_CPU_INFO = "/proc/cpuinfo"
_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"


def cpu_features(cpu_info: str = _CPU_INFO) -> set[str]:
    """Returns the instruction sets of this CPU, as named by Linux; empty on other systems."""
    path = pathlib.Path(cpu_info)
    return set(path.read_text().split()) if path.exists() else set()


def prefer_onednn(
    environ: MutableMapping[str, str] = os.environ, cpu_info: str = _CPU_INFO
) -> None:
    """Enables oneDNN on x86-64 CPUs with AVX2, unless TF_ENABLE_ONEDNN_OPTS is set.

    TensorFlow 2.15 enables it only on CPUs with VNNI, AVX512_BF16 or AMX, but it is faster with
    AVX2 too (docs/results.md#cpu-kernels). Repeated runs with one seed on one machine stay
    bit-identical.
    """
    if platform.machine() == "x86_64" and "avx2" in cpu_features(cpu_info):
        environ.setdefault(_VARIABLE, "1")
