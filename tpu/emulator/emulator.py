"""Runs an unmodified TPUEstimator(use_tpu=True) program on emulated TPU cores.

    with emulator.emulate("v3-8"):
        estimator = tf.compat.v1.estimator.tpu.TPUEstimator(model_fn, config=..., use_tpu=True, ...)
        estimator.train(input_fn, max_steps=100)

TPUEstimator builds its real TPU graph: the loop of `iterations_per_loop` steps, infeed and outfeed,
host_call, hooks, one input_fn per host. `replication` then copies the program of one core for each
core. Results equal those of a TPU up to rounding: the global batch is sharded over the cores,
gradients are summed over them (if the program does so), eval metrics come from all of them.

Not emulated: XLA (missing TPU kernels, dynamic shapes and lack of memory go unnoticed), bfloat16
inside float32 matrix products, step time, the random numbers of a TPU, TPU embeddings, model
parallelism, outside_compilation, AllToAll and CollectivePermute.

Patches private functions of TensorFlow 2.15 and tensorflow-estimator 2.15.0, the last releases with
TPUEstimator.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from unittest import mock

import tensorflow as tf
from tensorflow.python.client import session as session_lib
from tensorflow.python.ops import control_flow_util, gen_data_flow_ops
from tensorflow.python.tpu import tpu as tpu_lib
from tensorflow.python.tpu import tpu_system_metadata
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow_estimator.python.estimator.tpu import tpu_context, tpu_estimator

from tpu.connect import topology
from tpu.connect.topology import Topology
from tpu.emulator import replication

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
    with contextlib.ExitStack() as stack:
        for owner, name, replacement in _replacements(tpu_slice):
            stack.enter_context(mock.patch.object(owner, name, replacement))
        # No TPU worker to shut down.
        stack.enter_context(mock.patch.dict(os.environ, {"TF_TPU_GRACEFUL_SHUTDOWN_MODE": ""}))
        _active = True
        try:
            yield tpu_slice
        finally:
            _active = False


def _check_versions():
    estimator = importlib.metadata.version("tensorflow-estimator")
    if not tf.__version__.startswith(_TENSORFLOW_VERSION) or estimator != _ESTIMATOR_VERSION:
        raise RuntimeError(
            f"the emulator needs TensorFlow {_TENSORFLOW_VERSION}x and tensorflow-estimator "
            f"{_ESTIMATOR_VERSION}; installed are {tf.__version__} and {estimator}"
        )


def _replacements(tpu_slice):
    """Returns the functions to patch, as (owner, name, replacement)."""
    context = tpu_context._InternalTPUContext
    estimator = tpu_estimator.TPUEstimator
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    query = "_query_tpu_system_metadata"
    return [
        # Discovery of the TPU.
        (resolver, "__init__", _local_resolver_init(resolver.__init__)),
        (tpu_system_metadata, query, lambda *args, **kwargs: metadata(tpu_slice)),
        (tf.compat.v1.tpu, "initialize_system", _no_op),
        (tf.compat.v1.tpu, "shutdown_system", _no_op),
        # All hosts are one process: core ordinals count over all hosts.
        (context, "tpu_ordinal_function", _ordinal_function(tpu_slice.cores_per_host)),
        (context, "device_for_replica", lambda self, replica: ("/device:CPU:0", replica)),
        # The program of the cores, infeed and outfeed.
        (tpu_lib, "split_compile_and_shard", _run_on_cores(tpu_lib.split_compile_and_shard)),
        (tpu_ops, "infeed_enqueue_tuple", _infeed_enqueue_tuple),
        (tpu_ops, "outfeed_dequeue_tuple", _outfeed_dequeue_tuple),
        # The original program stays in the graph, unused and without kernels.
        (estimator, "__init__", _init_with_pruned_graph(estimator.__init__)),
        # Version 1 loops consist of nodes, which `replication` can copy.
        (control_flow_util, "ENABLE_CONTROL_FLOW_V2", False),
    ]


def metadata(tpu_slice: Topology):
    """Returns the `TPUSystemMetadata` of a slice."""
    devices = [
        session_lib._DeviceAttributes(
            f"/job:localhost/replica:0/task:{host}/device:TPU:{core}", "TPU", 0, 0
        )
        for host in range(tpu_slice.num_hosts)
        for core in range(tpu_slice.cores_per_host)
    ]
    return tpu_system_metadata.TPUSystemMetadata(
        num_cores=tpu_slice.num_cores,
        num_hosts=tpu_slice.num_hosts,
        num_of_cores_per_host=tpu_slice.cores_per_host,
        topology=None,
        devices=tuple(devices),
    )


def _local_resolver_init(real_init):
    def init(self, tpu=None, *args, **kwargs):
        del tpu, args, kwargs
        real_init(self, tpu="local")

    return init


def _init_with_pruned_graph(real_init):
    def init(self, *args, **kwargs):
        real_init(self, *args, **kwargs)
        config = tf.compat.v1.ConfigProto()
        config.CopyFrom(self._session_config)
        config.allow_soft_placement = True
        config.graph_options.place_pruned_graph = True
        self._session_config = config

    return init


def _no_op(*args, **kwargs):
    del args, kwargs
    return tf.no_op()


def _ordinal_function(cores_per_host):
    def tpu_ordinal_function(self, host_id):
        del self
        return lambda shard: host_id * cores_per_host + shard % cores_per_host

    return tpu_ordinal_function


def _run_on_cores(real_split_compile_and_shard):
    def split_compile_and_shard(computation, inputs=None, num_shards=1, **kwargs):
        graph = tf.compat.v1.get_default_graph()
        before = {op.name for op in graph.get_operations()}
        real_split_compile_and_shard(computation, inputs, num_shards, **kwargs)
        new = [op for op in graph.get_operations() if op.name not in before]
        results = replication.run_on_cores(new, num_shards)
        return tf.constant(b"", name="nothing_to_compile"), results

    return split_compile_and_shard


def _infeed_enqueue_tuple(inputs, shapes, layouts=None, device_ordinal=-1, name=None):
    del shapes, layouts
    queue = replication.queue(f"infeed_{device_ordinal}", [tensor.dtype for tensor in inputs])
    return gen_data_flow_ops.queue_enqueue_v2(queue, inputs, name=name)


def _outfeed_dequeue_tuple(dtypes, shapes, device_ordinal=-1, name=None):
    queue = replication.queue(f"outfeed_{device_ordinal}", dtypes)
    tensors = gen_data_flow_ops.queue_dequeue_v2(queue, dtypes, name=name)
    for tensor, shape in zip(tensors, shapes):
        tensor.set_shape(shape)
    return tensors
