"""Runs an unmodified TPUEstimator(use_tpu=True) program on emulated TPU cores.

    with emulator.emulate("v3-8"):
        estimator = tf.compat.v1.estimator.tpu.TPUEstimator(model_fn, config=..., use_tpu=True, ...)
        estimator.train(input_fn, max_steps=100)

TPUEstimator builds its real TPU graph: the loop of `iterations_per_loop` steps, infeed and outfeed,
host_call, hooks, one input_fn per host. `replication` then copies the program of one core for each
core. Results equal those of a TPU up to rounding: the global batch is sharded over the cores,
gradients are summed over them (if the program does so), eval metrics come from all of them. With
model parallelism (`num_cores_per_replica`), one emulated core runs the program of a replica.

Not emulated: XLA (missing TPU kernels, dynamic shapes and lack of memory go unnoticed), bfloat16
inside float32 matrix products, step time, the random numbers of a TPU, TPUStrategy.

Patches private functions of TensorFlow 2.15 and tensorflow-estimator 2.15.0, the last releases with
TPUEstimator.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from types import SimpleNamespace
from unittest import mock

import tensorflow as tf
from tensorflow.python.framework import graph_io
from tensorflow.python.tpu import tpu as tpu_lib

from tpu.connect import topology
from tpu.connect.topology import Topology
from tpu.emulator import (
    control_flow,
    discovery,
    embedding_ops,
    errors,
    host_io,
    replication,
    xla_values,
)
from tpu.emulator.discovery import metadata

__all__ = ["NOT_EMULATED", "emulate", "metadata"]
NOT_EMULATED = "XLA, bfloat16 matrix units, memory, speed"
_ESTIMATOR_VERSION = "2.15.0"
_TENSORFLOW_VERSION = "2.15."

_active = False


@contextlib.contextmanager
def emulate(tpu_slice: Topology | str):
    """Emulates a TPU in this process; a context manager that yields the `Topology`.

    A TPUClusterResolver finds this TPU at any address.

    Args:
      tpu_slice: a `Topology`, or its name, such as "v3-8", "v3-32" or "1x2" (HOSTSxCORES).

    Raises:
      RuntimeError: an unsupported version of TensorFlow, or a nested `emulate`.
      ValueError: an unknown slice.
    """
    global _active
    tpu_slice = topology.find(tpu_slice) if isinstance(tpu_slice, str) else tpu_slice
    _check_versions()
    if _active:
        raise RuntimeError("emulate() cannot be nested: a TPU is being emulated already")
    with _patched(_replacements(tpu_slice)):
        _active = True
        xla_values.reset_warnings()
        try:
            yield tpu_slice
        finally:
            _active = False


def answer_discovery(tpu_slice: Topology):
    """A context manager in which programs find a TPU slice, on which nothing can run."""
    _check_versions()
    return _patched(discovery.replacements(tpu_slice))


@contextlib.contextmanager
def _patched(replacements):
    with contextlib.ExitStack() as stack:
        for owner, name, replacement in replacements:
            stack.enter_context(mock.patch.object(owner, name, replacement))
        environment = discovery.environment()
        stack.enter_context(mock.patch.dict(os.environ, environment, clear=True))
        yield


def _check_versions():
    estimator = importlib.metadata.version("tensorflow-estimator")
    if not tf.__version__.startswith(_TENSORFLOW_VERSION) or estimator != _ESTIMATOR_VERSION:
        raise RuntimeError(
            f"the emulator needs TensorFlow {_TENSORFLOW_VERSION}x and tensorflow-estimator "
            f"{_ESTIMATOR_VERSION}; installed are {tf.__version__} and {estimator}"
        )


def _replacements(tpu_slice):
    """Returns the functions to patch, as (owner, name, replacement)."""
    return [
        *discovery.replacements(tpu_slice),
        *control_flow.replacements(),
        *host_io.replacements(),
        *embedding_ops.replacements(),
        *errors.replacements(),
        # For graph.pbtxt: a graph of many cores is large, and str() is ten times as fast.
        (graph_io, "text_format", SimpleNamespace(MessageToString=lambda graph, **_: str(graph))),
        (tpu_lib, "split_compile_and_shard", _run_on_cores(tpu_lib.split_compile_and_shard)),
    ]


def _run_on_cores(real_split_compile_and_shard):
    def split_compile_and_shard(computation, inputs=None, num_shards=1, **kwargs):
        graph = tf.compat.v1.get_default_graph()
        before = {op.name for op in graph.get_operations()}
        real_split_compile_and_shard(computation, inputs, num_shards, **kwargs)
        new = [op for op in graph.get_operations() if op.name not in before]
        results = replication.run_on_cores(new, num_shards)
        return tf.constant(b"", name="nothing_to_compile"), results

    return split_compile_and_shard
