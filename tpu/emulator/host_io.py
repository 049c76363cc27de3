"""Infeed and outfeed: the hosts feed each replica through a queue, and read its results from one.

All hosts are one process, so ordinals count the replicas of all hosts. With model parallelism, one
emulated core runs the program of a whole replica, and gets whole tensors.
"""

from __future__ import annotations

from types import SimpleNamespace

from tensorflow.python.ops import gen_data_flow_ops
from tensorflow.python.tpu import tpu_feed
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow_estimator.python.estimator.tpu import tpu_context, tpu_estimator

QUEUE_CAPACITY = 4  # the same for all handles of a queue


def queue(name, dtypes):
    """Returns the handle of a FIFO queue of any shapes, shared by name."""
    return gen_data_flow_ops.fifo_queue_v2(dtypes, capacity=QUEUE_CAPACITY, shared_name=name)


def replacements() -> list:
    """Returns the functions to patch, as (owner, name, replacement)."""
    internal_context = tpu_context._InternalTPUContext
    broadcast = tpu_estimator.generate_broadcast_enqueue_ops_fn
    number = _number_replicas(internal_context.device_for_replica)
    return [
        (internal_context, "tpu_ordinal_function", _tpu_ordinal_function),
        (internal_context, "device_for_replica", number),
        (tpu_estimator, "generate_broadcast_enqueue_ops_fn", _number_all_replicas(broadcast)),
        (tpu_feed._PartitionedInfeedQueue, "generate_enqueue_ops", _enqueue_whole_tensors),
        (tpu_ops, "infeed_enqueue_tuple", _infeed_enqueue_tuple),
        (tpu_ops, "outfeed_dequeue_tuple", _outfeed_dequeue_tuple),
    ]


def _infeed_enqueue_tuple(inputs, shapes, layouts=None, device_ordinal=-1, name=None):
    del shapes, layouts
    handle = queue(f"infeed_{device_ordinal}", [tensor.dtype for tensor in inputs])
    return gen_data_flow_ops.queue_enqueue_v2(handle, inputs, name=name)


def _outfeed_dequeue_tuple(dtypes, shapes, device_ordinal=-1, name=None):
    handle = queue(f"outfeed_{device_ordinal}", dtypes)
    tensors = gen_data_flow_ops.queue_dequeue_v2(handle, dtypes, name=name)
    for tensor, shape in zip(tensors, shapes):
        tensor.set_shape(shape)
    return tensors


def _tpu_ordinal_function(self, host_id):
    """Returns a function from the index of a shard of a host to its replica."""
    if self.device_assignment is not None:
        replicas = self.device_assignment.lookup_replicas(host_id, 0)
        return lambda shard: replicas[shard]
    cores_per_host = self.num_of_cores_per_host
    return lambda shard: host_id * cores_per_host + shard % cores_per_host


def _number_replicas(real_device_for_replica):
    return lambda self, replica_id: (real_device_for_replica(self, replica_id)[0], replica_id)


def _number_all_replicas(real_generate):
    """Feeds all replicas: TPUEstimator would use the ordinal of the replica within its host."""

    class Context:
        """A context of TPUEstimator whose ordinals are replicas."""

        device_assignment = SimpleNamespace(tpu_ordinal=lambda replica: replica)

        def __init__(self, ctx):
            self._ctx = ctx

        def __getattr__(self, name):
            return getattr(self._ctx, name)

    def generate(ctx, input_fn, inputs_structure_recorder, num_hosts):
        return real_generate(Context(ctx), input_fn, inputs_structure_recorder, num_hosts)

    return generate


def _enqueue_whole_tensors(self, sharded_inputs):
    """Replaces `_PartitionedInfeedQueue.generate_enqueue_ops`: no tensor is partitioned."""
    self.set_configuration_from_sharded_input_tensors(sharded_inputs)
    replicas = self._device_assignment.lookup_replicas(task_id=self._host_id, logical_core=0)
    enqueued = []
    for i, tensors in enumerate(sharded_inputs):
        for tensor, dims in zip(tensors, self._input_partition_dims):
            self._check_input_partition_dims(tensor, dims)
        enqueued.append(
            tpu_ops.infeed_enqueue_tuple(
                inputs=tensors,
                shapes=[tensor.shape for tensor in tensors],
                name=f"enqueue/replica_{i}",
                device_ordinal=replicas[i],
            )
        )
    return enqueued
