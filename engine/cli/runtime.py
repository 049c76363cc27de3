"""TensorFlow's global state for both wrappers: TF1 graphs, resource variables, quiet logs."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import tensorflow as tf
from absl import logging
from tensorflow.python import tf2
from tensorflow.python.eager import context
from tensorflow.python.util import module_wrapper

from common.errors import UsageError
from engine.cli import cpu_kernels, io_errors

# On x86 and ARM.
_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}


def prepare() -> None:
    """Enables TensorFlow 1 behaviour; hides TensorFlow's log and warnings unless --verbosity >= 0.

    TPUEstimator's checks do not see into the functions of TF2 control flow, so both wrappers build
    TF1 graphs. A TPU needs resource variables.
    """
    if logging.get_verbosity() < logging.INFO:
        tf.get_logger().setLevel("ERROR")
        # `io_errors` reports it once the error reaches the main thread.
        tf.get_logger().addFilter(_is_not_of_summaries)
        io_errors.hide_in_threads()
        # Warnings of TF1 names, hidden by this level: each would search all modules for its place.
        module_wrapper._PER_MODULE_WARNING_LIMIT = 0
        # The Keras layers recommended instead do not add batch-norm updates to UPDATE_OPS.
        warnings.filterwarnings("ignore", "`tf.layers", UserWarning)
        # A tf.distribute strategy reads the options of a data set.
        warnings.filterwarnings("ignore", "To make it possible to preserve tf.data", UserWarning)
    tf.compat.v1.disable_v2_behavior()
    tf.compat.v1.enable_resource_variables()


@contextlib.contextmanager
def tensorflow_1() -> Iterator[None]:
    """Has the behaviour of `prepare`, and a new graph, in the `with`; then that of before."""
    was_2 = tf2.enabled()
    prepare()
    try:
        with tf.Graph().as_default():
            yield
    finally:
        if was_2:
            # `enable_v2_behavior` alone refuses to make a program eager that has used TensorFlow.
            context.default_execution_mode = context.EAGER_MODE
            if (made := context.context_safe()) is not None:
                made._thread_local_data.is_eager = True
                if not made.context_switches.stack:  # made in here, for graphs: see tf.init_scope
                    made.context_switches.push(False, context.eager_mode, None)
            tf.compat.v1.enable_v2_behavior()


def _is_not_of_summaries(record):
    return "EventFileWriter writer thread error" not in str(record.msg)


def supports_bfloat16(features: set[str] | None = None) -> bool:
    """Returns True if there is a GPU, or the CPU has bfloat16 instructions or is unknown.

    Without them TensorFlow computes in float32 and rounds. `check_bfloat16` finds what fails.

    Args:
      features: instruction sets of the CPU; None for this machine's.
    """
    features = cpu_kernels.cpu_features() if features is None else features
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    return has_gpu or not features or not _BFLOAT16.isdisjoint(features)


def check_bfloat16() -> None:
    """Checks that bfloat16 operations run in this process.

    Raises:
      UsageError: they would end it with SIGABRT.
    """
    fault = cpu_kernels.explain_bfloat16_fault()
    if fault and not tf.config.list_physical_devices("GPU"):
        raise UsageError(f"--precision=bfloat16: {fault}")
