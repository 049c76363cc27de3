"""What a training ran on: versions, the CPU and the accelerators."""

from __future__ import annotations

import collections
import os
import pathlib
import platform
import re

import tensorflow as tf

_CPU_INFO = "/proc/cpuinfo"


def describe(session: tf.compat.v1.Session) -> str:
    """Returns one line about the machine of a session, and about its GPUs or TPU cores."""
    types = collections.Counter(device.device_type for device in session.list_devices())
    accelerators = [f"{types[kind]} {kind}" for kind in ("GPU", "TPU") if types[kind]]
    return "; ".join(
        [
            f"TensorFlow {tf.__version__}, Python {platform.python_version()}",
            f"{platform.system()} {platform.machine()}",
            f"{_cpu_name()}, {os.cpu_count()} CPU cores",
            *accelerators,
        ]
    )


def _cpu_name():
    path = pathlib.Path(_CPU_INFO)
    found = re.search(r"^model name\s*: *(.+)$", path.read_text(), re.M) if path.exists() else None
    return found[1].strip() if found else platform.processor() or "unknown CPU"
