"""The kernels that TensorFlow computes with on a CPU, chosen before TensorFlow is imported."""

from __future__ import annotations

import os
import pathlib
import platform
from collections.abc import MutableMapping

_CPU_INFO = "/proc/cpuinfo"
_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"


def cpu_features(cpu_info: str = _CPU_INFO) -> set[str]:
    """Returns the instruction sets of this CPU as Linux names them; none on other systems."""
    path = pathlib.Path(cpu_info)
    return set(path.read_text().split()) if path.exists() else set()


def prefer_onednn(
    environ: MutableMapping[str, str] = os.environ, cpu_info: str = _CPU_INFO
) -> None:
    """Turns oneDNN on where it is faster and TensorFlow leaves it off: on x86-64 with AVX2.

    TensorFlow 2.15 enables it by default only for CPUs with VNNI, AVX512_BF16 or AMX. A value of
    TF_ENABLE_ONEDNN_OPTS that the user has set stays. docs/results.md#cpu-kernels has the figures.
    With a seed, repeated runs on one machine stay bit-identical, with oneDNN and without.
    """
    if platform.machine() == "x86_64" and "avx2" in cpu_features(cpu_info):
        environ.setdefault(_VARIABLE, "1")
