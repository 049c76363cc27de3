"""Runs an unmodified TPUEstimator(use_tpu=True) program on emulated TPU cores.

    with emulator.emulate("v3-8"):
        estimator = tf.compat.v1.estimator.tpu.TPUEstimator(model_fn, config=..., use_tpu=True, ...)
        estimator.train(input_fn, max_steps=100)

TPUEstimator builds its real TPU graph: the loop of `iterations_per_loop` steps, infeed and outfeed,
host_call, hooks, one input_fn per host. Cores then run the replicated part of it: by default,
`replication` copies the program of one core for each core. Results equal those of a TPU up to
rounding: the global batch is sharded over the cores, gradients are summed over them (if the program
does so), eval metrics come from all of them. With model parallelism (`num_cores_per_replica`), one
emulated core runs the program of a replica.

Not emulated: XLA (missing TPU kernels, dynamic shapes and lack of memory go unnoticed), bfloat16
inside float32 matrix products, step time, the random numbers of a TPU, TPUStrategy.

Patches private functions of TensorFlow 2.15 and tensorflow-estimator 2.15.0, the last releases with
TPUEstimator.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Protocol
from unittest import mock

import tensorflow as tf
from tensorflow.python.framework import graph_io
from tensorflow.python.tpu import tpu as tpu_lib

from tpu import software
from tpu.connect import topology
from tpu.connect.topology import Topology
from tpu.emulator import discovery, errors, replication

NOT_EMULATED = "XLA, bfloat16 matrix units, memory, speed"
_ESTIMATOR = "2.15.0"  # version of tensorflow-estimator

_active = False


class Cores(Protocol):
    """Runs the replicated graph instead of TPU cores: an object, or a module.

    Attributes:
      waiting_threads: number of threads of a session that only wait for the cores.
    """

    waiting_threads: int

    def replacements(self) -> list:
        """Returns the functions to patch, as (owner, name, replacement).

        Those of infeed, outfeed, loops and TPU embeddings, which TPU cores share with their hosts.
        """

    def run(self, build: Callable[[], list], num_cores: int) -> list[tf.Tensor]:
        """Adds what runs the program of a core on all cores to the default graph.

        Args:
          build: adds the replicated graph, with its TPUReplicatedInputs and TPUReplicatedOutputs,
            to the default graph, and returns its operations.
          num_cores: number of cores.

        Returns:
          The results of core 0, available once all cores are done.

        Raises:
          NotImplementedError: these cores cannot run an operation.
        """


@contextlib.contextmanager
def emulate(tpu_slice: Topology | str, cores: Cores = replication):
    """Emulates a TPU in this process; a context manager that yields the `Topology`.

    A TPUClusterResolver finds this TPU at any address.

    Args:
      tpu_slice: a `Topology`, or its name, such as "v3-8", "v3-32" or "1x2" (HOSTSxCORES).
      cores: what runs the program of a core; default emulated cores.

    Raises:
      RuntimeError: an unsupported version of TensorFlow, or a nested `emulate`.
      ValueError: an unknown slice.
    """
    global _active
    tpu_slice = topology.find(tpu_slice) if isinstance(tpu_slice, str) else tpu_slice
    _check_versions()
    if _active:
        raise RuntimeError("emulate() cannot be nested: a TPU is being emulated already")
    with _patched(_replacements(tpu_slice, cores)):
        _active = True
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
    problems, estimator = software.find_problems(), software.version_of("tensorflow-estimator")
    if estimator != _ESTIMATOR:
        problems.append(f"tensorflow-estimator {estimator} is unsupported: install {_ESTIMATOR}")
    if problems:
        raise RuntimeError(f"the emulator cannot run: {problems[0]}")


def _replacements(tpu_slice, cores):
    """Returns the functions to patch, as (owner, name, replacement)."""
    return [
        *discovery.replacements(tpu_slice, cores.waiting_threads),
        *cores.replacements(),
        *errors.replacements(),
        # For graph.pbtxt: a graph of many cores is large, and str() is ten times as fast.
        (graph_io, "text_format", SimpleNamespace(MessageToString=lambda graph, **_: str(graph))),
        (tpu_lib, "split_compile_and_shard", _run_on(cores, tpu_lib.split_compile_and_shard)),
    ]


def _run_on(cores, real_split_compile_and_shard):
    def split_compile_and_shard(computation, inputs=None, num_shards=1, **kwargs):
        def build():
            graph = tf.compat.v1.get_default_graph()
            before = {op.name for op in graph.get_operations()}
            real_split_compile_and_shard(computation, inputs, num_shards, **kwargs)
            return [op for op in graph.get_operations() if op.name not in before]

        results = cores.run(build, num_shards)
        return tf.constant(b"", name="nothing_to_compile"), results

    return split_compile_and_shard
