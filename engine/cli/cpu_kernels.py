"""CPU instruction sets, and oneDNN kernels, which are chosen before TensorFlow is imported."""

from __future__ import annotations

import os
import pathlib
import platform
from collections.abc import Mapping, MutableMapping

_CPU_INFO = "/proc/cpuinfo"
_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
# oneDNN reads the second name if the first is not set, in any case of letters.
_ISA_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_ISAS_WITHOUT_BFLOAT16 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI")
_ISA_OF_AVX_NE_CONVERT = "AVX2_VNNI_2"
# With one of these TensorFlow 2.15 gives bfloat16 operations to oneDNN
# (IsDataTypeSupportedByOneDNNOnThisCPU), whatever the limit.
_BFLOAT16_THROUGH_ONEDNN = {"avx512f", "avx_ne_convert"}


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


def explain_bfloat16_fault(
    environ: Mapping[str, str] = os.environ, cpu_info: str = _CPU_INFO
) -> str | None:
    """Returns why bfloat16 operations end this process with SIGABRT; None if they do not.

    TensorFlow takes bfloat16 as supported by the instruction sets of the CPU, but oneDNN has no
    bfloat16 kernels below a limit that an environment variable sets.
    """
    variable = next((name for name in _ISA_LIMITS if environ.get(name)), None)
    if variable is None or environ.get(_VARIABLE, "1").lower() in ("0", "false"):
        return None
    features, limit = cpu_features(cpu_info), environ[variable].upper()
    is_too_low = limit in _ISAS_WITHOUT_BFLOAT16
    is_too_low |= limit == _ISA_OF_AVX_NE_CONVERT and "avx_ne_convert" not in features
    if not is_too_low or _BFLOAT16_THROUGH_ONEDNN.isdisjoint(features):
        return None
    return (
        f"oneDNN has no bfloat16 kernels with {variable}={environ[variable]}. Unset it, or set "
        f"{_VARIABLE}=0"
    )
