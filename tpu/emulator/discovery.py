"""Answers a program that looks for its TPU: addresses, resolvers, sessions, devices, topology.

Every TPU name, address and environment variable leads to the emulated slice. Sessions that are
opened with a TPU address are sessions of this process, so nothing touches the network.
"""

from __future__ import annotations

import os
import re

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.tpu import topology_pb2
from tensorflow.python.client import session as session_lib
from tensorflow.python.distribute import tpu_strategy
from tensorflow.python.eager import context, remote
from tensorflow.python.framework import ops
from tensorflow.python.tpu import topology as topology_lib
from tensorflow.python.tpu import tpu_strategy_util, tpu_system_metadata
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow_estimator.python.estimator.tpu import tpu_context

from tpu.connect.topology import Topology

_ADDRESS = "127.0.0.1:8470"
_REMOTE_PARTS = re.compile(r"/(job|replica|task):[^/]*")
_CONNECT = ("experimental_connect_to_cluster", "experimental_connect_to_host")
_CONFIG_MODULES = (tf.config, tf.compat.v1.config, tf.compat.v2.config)


def replacements(tpu_slice: Topology, waiting_threads: int = 0) -> list:
    """Returns the functions to patch, as (owner, name, replacement).

    Args:
      tpu_slice: the slice that programs find.
      waiting_threads: number of threads of a session that only wait for the cores.
    """
    session = session_lib.BaseSession
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    serialized = topology_of(tpu_slice).serialized()
    devices = context.Context.list_logical_devices
    return [
        (resolver, "__init__", _resolver_init(resolver.__init__)),
        (resolver, "master", lambda *a, **k: f"grpc://{_ADDRESS}"),
        (resolver, "cluster_spec", _resolver_cluster_spec),
        (resolver, "num_accelerators", lambda self, *a, **k: {"TPU": tpu_slice.cores_per_host}),
        (tpu_system_metadata, "_query_tpu_system_metadata", lambda *a, **k: metadata(tpu_slice)),
        (tpu_system_metadata, "master_job", lambda *a, **k: None),
        (tpu_context._InternalTPUContext, "master_job", None),
        (session, "__init__", _local_session(session.__init__, waiting_threads)),
        (session, "list_devices", _list_devices(session.list_devices, tpu_slice)),
        (session_lib.Session, "reset", staticmethod(_reset(session_lib.Session.reset))),
        (context.Context, "list_logical_devices", _list_logical_devices(devices, tpu_slice)),
        (ops.Graph, "_apply_device_functions", _on_this_host(ops.Graph._apply_device_functions)),
        (tpu_ops, "configure_distributed_tpu", lambda *a, **k: tf.constant(serialized)),
        (tpu_ops, "shutdown_distributed_tpu", lambda *a, **k: tf.no_op()),
        (tpu_strategy_util, "initialize_tpu_system_impl", _initializer(serialized)),
        (tpu_strategy_util, "shutdown_tpu_system_impl", _do_nothing),
        (tpu_strategy.TPUExtended, "__init__", _refuse_strategy),
        (remote, "connect_to_cluster", _do_nothing),
        (remote, "_LOCAL_MASTERS", _Everything()),  # for those who imported connect_to_cluster
        *((module, name, _do_nothing) for module in _CONFIG_MODULES for name in _CONNECT),
    ]


def environment() -> dict[str, str]:
    """Returns the environment of the program; TF_CONFIG, which would name other hosts, is unset."""
    found = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    # Colab programs read the address; a real TPU worker would have to be shut down.
    return {"COLAB_TPU_ADDR": _ADDRESS, **found, "TF_TPU_GRACEFUL_SHUTDOWN_MODE": ""}


def metadata(tpu_slice: Topology):
    """Returns the `TPUSystemMetadata` of a slice."""
    return tpu_system_metadata.TPUSystemMetadata(
        num_cores=tpu_slice.num_cores,
        num_hosts=tpu_slice.num_hosts,
        num_of_cores_per_host=tpu_slice.cores_per_host,
        topology=topology_of(tpu_slice),
        devices=(*_devices(tpu_slice, "localhost", "CPU"), *_devices(tpu_slice, "localhost")),
    )


def topology_of(tpu_slice: Topology) -> topology_lib.Topology:
    """Returns the `tf.tpu.experimental.Topology` of a slice.

    Hosts form a mesh as square as possible, and so do the chips of a host: a v3-32 has 4x4 chips of
    two cores, and host 1 has the chips in columns 2 and 3 of rows 0 and 1. The devices of a v4
    slice are chips.
    """
    per_host = tpu_slice.cores_per_host
    cores = 2 if per_host % 2 == 0 and tpu_slice.generation != "v4" else 1
    chips, hosts = _factors(per_host // cores), _factors(tpu_slice.num_hosts)[::-1]
    coordinates = [
        [
            [host_x * chips[0] + chip_x, host_y * chips[1] + chip_y, 0, core]
            for chip_y in range(chips[1])
            for chip_x in range(chips[0])
            for core in range(cores)
        ]
        for host_y in range(hosts[1])
        for host_x in range(hosts[0])
    ]
    mesh = [hosts[0] * chips[0], hosts[1] * chips[1], 1, cores]
    proto = topology_pb2.TopologyProto(
        mesh_shape=mesh,
        num_tasks=tpu_slice.num_hosts,
        num_tpu_devices_per_task=per_host,
        device_coordinates=np.ravel(coordinates).tolist(),
    )
    return topology_lib.Topology(serialized=proto.SerializeToString())


def _factors(count):
    """Returns two factors of `count` that are as close as possible, the smaller first."""
    small = max(i for i in range(1, count + 1) if not count % i and i**2 <= count)
    return small, count // small


def _devices(tpu_slice, job, kind="TPU"):
    """Yields the devices of a slice, or the CPU of each host, as `Session.list_devices` does."""
    for host in range(tpu_slice.num_hosts):
        for i in range(tpu_slice.cores_per_host if kind == "TPU" else 1):
            name = f"/job:{job}/replica:0/task:{host}/device:{kind}:{i}"
            yield session_lib._DeviceAttributes(name, kind, 0, 0)


class _Everything:
    """A container that contains every value."""

    def __contains__(self, value):
        return True


class _LocalClusterSpec(tf.train.ClusterSpec):
    """The address of the TPU worker. False, so that RunConfig does not connect to it."""

    def __bool__(self):
        return False

    __nonzero__ = __bool__


def _resolver_init(real_init):
    def init(self, tpu=None, zone=None, project=None, job_name="worker", *args, **kwargs):
        del tpu, zone, project, args, kwargs
        real_init(self, "local", job_name=job_name)

    return init


def _resolver_cluster_spec(self):
    return _LocalClusterSpec({self.task_type or "worker": [_ADDRESS]})


def _local_session(real_init, waiting_threads):
    def init(self, target="", graph=None, config=None):
        local = tf.compat.v1.ConfigProto()
        if config is not None:
            local.CopyFrom(config)
        local.ClearField("cluster_def")
        local.ClearField("device_filters")
        local.allow_soft_placement = True
        # The original program of the cores stays in the graph, unused and without kernels.
        local.graph_options.place_pruned_graph = True
        if waiting_threads:  # a pool of this session, or another session decides on its size
            threads = local.inter_op_parallelism_threads or len(os.sched_getaffinity(0))
            local.inter_op_parallelism_threads = threads + waiting_threads
            local.use_per_session_threads = True
        real_init(self, "", graph, local)
        self._emulated_job = "worker" if target else "localhost"

    return init


def _list_devices(real_list_devices, tpu_slice):
    def list_devices(self):
        return [*real_list_devices(self), *_devices(tpu_slice, self._emulated_job)]

    return list_devices


def _list_logical_devices(real_list_logical_devices, tpu_slice):
    def list_logical_devices(self, device_type=None):
        if device_type != "TPU":
            return real_list_logical_devices(self, device_type)
        devices = _devices(tpu_slice, "localhost")
        return [context.LogicalDevice(name=device.name, device_type="TPU") for device in devices]

    return list_logical_devices


def _reset(real_reset):
    def reset(target, containers=None, config=None):
        return None if target else real_reset(target, containers, config)

    return reset


def _on_this_host(real_apply_device_functions):
    """Places operations of all jobs and hosts in this process."""

    def apply_device_functions(self, op):
        real_apply_device_functions(self, op)
        device = op.device
        if "/job:" in device or "/task:" in device or "/replica:" in device:
            op._set_device(_REMOTE_PARTS.sub("", device))

    return apply_device_functions


def _initializer(serialized):
    def initialize(cluster_resolver, tpu_cluster_resolver_cls):
        del tpu_cluster_resolver_cls
        if ops.inside_function():
            return tf.constant(serialized)
        if cluster_resolver is not None:
            cluster_resolver.set_tpu_topology(serialized)
        return topology_lib.Topology(serialized=serialized)

    return initialize


def _refuse_strategy(self, *args, **kwargs):
    del self, args, kwargs
    raise NotImplementedError(
        "TPUStrategy is not emulated: the emulator runs TPUEstimator. Use TPUEstimator, or another "
        "tf.distribute strategy"
    )


def _do_nothing(*args, **kwargs):
    del args, kwargs
