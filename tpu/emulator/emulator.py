"""Runs an unmodified TPUEstimator(use_tpu=True) program on emulated TPU cores.

    with emulator.emulate("v3-8"):
        estimator = tf.compat.v1.estimator.tpu.TPUEstimator(model_fn, config=..., use_tpu=True, ...)
        estimator.train(input_fn, max_steps=100)

TPUEstimator builds its real TPU graph: the loop of `iterations_per_loop` steps, infeed and outfeed,
host_call, hooks, one input_fn per host. Cores then run the replicated part of it: by default,
`replication` copies the program of one core for each core, except what gives the same results on
all of them. Results equal those of a TPU up to rounding: the global batch is sharded over the
cores, gradients are summed over them (if the program does so), eval metrics come from all of them.
With model parallelism (`num_cores_per_replica`), one emulated core runs the program of a replica.

Not emulated: XLA (missing TPU kernels, dynamic shapes and lack of memory go unnoticed), bfloat16
inside float32 matrix products, step time, the random numbers of a TPU, TPUStrategy.

Patches private functions of TensorFlow 2.15 and tensorflow-estimator 2.15.0, the last releases with
TPUEstimator.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Protocol
from unittest import mock

import tensorflow as tf
from tensorflow.python.compiler.xla import xla
from tensorflow.python.framework import graph_io
from tensorflow.python.tpu import tpu as tpu_lib
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

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

    def run(self, build: Callable[[], list], num_cores: int) -> list[list[tf.Tensor]]:
        """Adds what runs the program of a core on all cores to the default graph.

        Args:
          build: adds the replicated graph, with its TPUReplicatedInputs and TPUReplicatedOutputs,
            to the default graph, and returns its operations.
          num_cores: number of cores.

        Returns:
          The results of each core, or of core 0 only, available once all cores are done.

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
        # All of tf.tpu.replicate, rewrite, shard, batch_parallel and TPUEstimator call it.
        (
            tpu_lib,
            "split_compile_and_replicate",
            _run_on(cores, tpu_lib.split_compile_and_replicate),
        ),
    ]


def is_of_estimator(computation: Callable) -> bool:
    """Returns True for the replicated loops of TPUEstimator, False for those of a program."""
    return getattr(computation, "__module__", None) == tpu_estimator.__name__


def _run_on(cores, real_split_compile_and_replicate):
    def split_compile_and_replicate(computation, inputs=None, *args, **kwargs):
        if tf.compat.v1.get_default_graph().building_function:  # an export for TPUs (export_to_tpu)
            return real_split_compile_and_replicate(computation, inputs, *args, **kwargs)
        num_cores = 1 if inputs is None else len(inputs)
        outputs, has_tensors = [], True

        def compute(*values):
            nonlocal has_tensors
            tensors, has_tensors = _wait_for_operations(computation(*values))
            return tensors

        def build():
            graph = tf.compat.v1.get_default_graph()
            with graph.control_dependencies(None):
                graph._add_new_tf_operations(compute_devices=False)  # cores of an earlier call
            before = {op.name for op in graph.get_operations()}
            outputs.extend(real_split_compile_and_replicate(compute, inputs, *args, **kwargs)[1])
            return [op for op in graph.get_operations() if op.name not in before]

        results = cores.run(build, num_cores)
        if len(results) < num_cores and not is_of_estimator(computation):
            raise NotImplementedError(
                "PJRT devices return the results of core 0 only. Use TPUEstimator instead of "
                "tf.tpu.replicate, shard and batch_parallel, or run the program with emulate"
            )
        pack = functools.partial(_pack, structure=outputs[0])
        results = [pack(values) if has_tensors else tf.group(*values) for values in results]
        return [tf.constant(b"", name="nothing_to_compile"), results]

    return split_compile_and_replicate


def _wait_for_operations(outputs):
    """Returns the outputs of a computation without its operations, and whether it has tensors.

    Cores run only what tensors depend on, so the tensors wait for the operations. Without tensors,
    a constant does.
    """
    flat = [] if outputs is None else tf.nest.flatten(outputs)
    operations = [output for output in flat if isinstance(output, tf.Operation)]
    tensors = flat[: len(flat) - len(operations)]
    is_invalid = not xla.is_flat(outputs) or any(isinstance(t, tf.Operation) for t in tensors)
    if tensors and (not operations or is_invalid):  # TensorFlow refuses an invalid structure
        return outputs, True
    with tf.control_dependencies(operations):
        if not tensors:
            return tf.constant(0), False
        return [None if tensor is None else tf.identity(tensor) for tensor in tensors], True


def _pack(values, structure):
    """Returns the results of a core in the structure that the outputs of a computation have."""
    values = iter(values)
    flat = tf.nest.flatten(structure, expand_composites=True)
    flat = [output if output is None else _like(output, next(values)) for output in flat]
    return tf.nest.pack_sequence_as(structure, flat, expand_composites=True)


def _like(output, value):
    value.set_shape(output.shape)  # unknown after a sum over the cores
    return value
