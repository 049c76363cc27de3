"""TensorFlow as both wrappers want it: graphs, resource variables, and a quiet log."""

from __future__ import annotations

import warnings

import tensorflow as tf
from absl import logging

from engine.cli import cpu_kernels

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


def computes_bfloat16(features: set[str] | None = None) -> bool:
    """Returns whether a GPU or this CPU has instructions for bfloat16; true if it is unknown.

    Args:
      features: instruction sets of the CPU; None for those of this machine.
    """
    features = cpu_kernels.cpu_features() if features is None else features
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    return has_gpu or not features or not _BFLOAT16.isdisjoint(features)
