"""TensorFlow as both wrappers want it: graphs, resource variables, and a quiet log."""

from __future__ import annotations

import pathlib
import warnings

import tensorflow as tf
from absl import logging

_CPU_INFO = "/proc/cpuinfo"
# Of x86 and of ARM.
_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}


def prepare() -> None:
    """Sets TensorFlow 1 behaviour; `--verbosity=0` or above lets TensorFlow's own log through.

    With TensorFlow 2's control flow several of TPUEstimator's checks do not see the graph, so both
    wrappers build the same, version 1 graph. Resource variables are what a TPU needs.
    """
    if logging.get_verbosity() < logging.INFO:
        tf.get_logger().setLevel("ERROR")
        # tf1 layers: Keras' own do not put their batch-norm updates into UPDATE_OPS.
        warnings.filterwarnings("ignore", "`tf.layers", UserWarning)
        # A strategy looks at the options of a data set.
        warnings.filterwarnings("ignore", "To make it possible to preserve tf.data", UserWarning)
    tf.compat.v1.disable_v2_behavior()
    tf.compat.v1.enable_resource_variables()


def computes_bfloat16(cpu_info: str = _CPU_INFO) -> bool:
    """Returns whether a GPU or this CPU has instructions for bfloat16; true if nobody can tell."""
    if tf.config.list_physical_devices("GPU") or not pathlib.Path(cpu_info).exists():
        return True
    return not _BFLOAT16.isdisjoint(pathlib.Path(cpu_info).read_text().split())
