"""Runs the program of a core on PJRT devices: see `emulator.Cores`.

    session.run of TPUEstimator
      begin     uploads the variables that the host has changed since the last loop
      while     the condition of TPUEstimator's loop
        submit    the batches of all cores, from the infeed queues, to the devices
        collect   what the step returns, to the outfeed queues
      finish    assigns the variables that the steps have changed

Everything but the step is an operation of TensorFlow on the host. `submit` of a step does not wait
for the step before, so its batch goes to the devices meanwhile.
"""

from __future__ import annotations

from unittest import mock

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.ops import control_flow_util, gen_data_flow_ops, gen_resource_variable_ops
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

from tpu.emulator import host_io
from tpu.graph import nodes as node_defs
from tpu.graph.op_types import SUMS
from tpu.graph.replicated_graph import ReplicatedGraph
from tpu.graph.single_step import SingleStep, single_steps
from tpu.pjrt import hosts
from tpu.pjrt.device_step import DeviceStep, needed
from tpu.pjrt.loop import Loop

_DEVICE = "/device:CPU:0"


class PJRTCores:
    """The devices of a `client.Devices`, as cores of TPUEstimator.

    Attributes:
      devices: the `client.Devices`.
      error: the exception of the devices that ended a session.run; else None.
      resident: the `Loop` whose variables are on the devices, or None.
    """

    waiting_threads = 2  # in `Loop.submit` and `Loop.collect`

    def __init__(self, devices):
        self.devices = devices
        self.error = self.resident = None

    def replacements(self) -> list:
        """Returns the functions to patch: infeed and outfeed are queues of the host."""
        validate = (tpu_estimator, "_validate_tpu_training_graph", _validate_training_graph)
        of_hosts = hosts.replacements(self.devices) if self.devices.num_processes > 1 else []
        return [*host_io.replacements(), validate, *of_hosts]

    def run(self, build, num_cores):
        """Adds the loop around the steps on the devices to the default graph."""
        del num_cores  # those of the devices
        graph = tf.compat.v1.get_default_graph()
        with single_steps(control_flow_v2=True, with_condition=True) as steps:
            operations = build()
        program = ReplicatedGraph(operations)
        if not steps:
            raise NotImplementedError("PJRT devices run TPUEstimator's loops, and this is none")
        device_step = DeviceStep(graph, operations, steps[0])
        on_host = graph.device(_DEVICE)
        with graph.control_dependencies(None), graph.name_scope("pjrt"), on_host:
            return [_HostLoop(graph, program, steps[0], device_step, self).add()]


def _validate_training_graph(ctx, validate=tpu_estimator._validate_tpu_training_graph):
    """Also accepts an all-reduce in a conditional or loop, which are functions here."""
    graph = tf.compat.v1.get_default_graph()
    calls = [op.node_def for op in graph.get_operations() if node_defs.takes_functions(op.type)]
    if not any(node.op in SUMS for node in node_defs.with_inner(calls, graph)):
        validate(ctx)


class _HostLoop:
    """Builds the loop on the host."""

    def __init__(self, graph, program, step: SingleStep, device_step: DeviceStep, cores):
        self._program, self._step, self._device_step = program, step, device_step
        self._loop = Loop(cores, device_step)
        self._global_step = tf.compat.v1.train.get_global_step(graph)
        devices = cores.devices
        first = devices.process_id * devices.num_local
        self._cores = range(first, first + devices.num_local)  # of this host
        self._outfeed_cores = range(devices.num_outfeed)

    def add(self):
        """Adds the loop; returns the results of core 0."""
        step, device_step = self._step, self._device_step
        hosted = device_step.host_values
        begin = self._begin()

        def go_on(submitted, collected, *values):
            del submitted, collected
            return self._on_host([step.goes_on], self._named(step.inputs, hosted, values))[0]

        def body(submitted, collected, *values):
            known = self._named(step.inputs, hosted, values)
            with tf.control_dependencies([submitted]):
                batches = [self._dequeue(core) for core in self._cores]
            read = [values[hosted.index(i)] for i in device_step.read_values]
            names = [tensor.name for tensor in device_step.infeed]
            fed = [batch[name] for batch in batches for name in names]
            submitted = tf.numpy_function(self._loop.submit, [submitted, *fed, *read], tf.int64)
            if device_step.outfeed and self._outfeed_cores:
                with tf.control_dependencies([submitted, collected]):
                    collected = self._collect()
            known.update(batches[0])
            results = self._on_host([step.results[i] for i in hosted], known)
            return [submitted, collected, *results]

        initial = self._on_host([step.initial[i] for i in hosted], {})
        with mock.patch.object(control_flow_util, "ENABLE_CONTROL_FLOW_V2", False):
            loop = tf.while_loop(go_on, body, [begin, tf.constant(0), *initial])
        return self._finish(loop)

    def _begin(self):
        """Returns the number of the first step, once the variables are on the devices."""
        device_step, external = self._device_step, self._program.replicated_inputs
        arguments = [
            value for tensor in device_step.arguments for value in self._of_cores(external, tensor)
        ]
        carried = self._on_host([self._step.initial[i] for i in device_step.device_values], {})
        variables = [
            gen_resource_variable_ops.read_variable_op(handle, handle.op.get_attr("dtype"))
            for handle in device_step.handles
        ]
        number = tf.constant(0, tf.int64)
        if self._global_step is not None:
            number = tf.cast(self._global_step, tf.int64)
        with tf.control_dependencies(self._program.external_controls):
            inputs = [number, *arguments, *carried, *variables]
            return tf.numpy_function(self._loop.begin, inputs, tf.int64)

    def _of_cores(self, replicated_inputs, tensor):
        """Returns the values of an argument for the cores of this host."""
        values = replicated_inputs.get(tensor.name)
        return [values[core] if values else tensor for core in self._cores]

    def _dequeue(self, core):
        """Returns `{name: tensor}` of the infeed of a core."""
        tensors = self._program.infeed
        if not tensors:
            return {}
        dtypes = [tensor.dtype for tensor in tensors]
        queue = host_io.queue(f"infeed_{core}", dtypes)
        values = gen_data_flow_ops.queue_dequeue_v2(queue, dtypes)
        for value, tensor in zip(values, tensors):
            value.set_shape(tensor.shape)
        return {tensor.name: value for tensor, value in zip(tensors, values)}

    def _collect(self):
        """Enqueues the results of a step, and returns a number once that is done."""
        dtypes = [tensor.dtype for tensor in self._device_step.outfeed]
        values = tf.numpy_function(self._loop.collect, [], dtypes * len(self._outfeed_cores))
        enqueued = []
        for core in self._outfeed_cores:
            queue = host_io.queue(f"outfeed_{core}", dtypes)
            of_core = values[core * len(dtypes) : (core + 1) * len(dtypes)]
            enqueued.append(gen_data_flow_ops.queue_enqueue_v2(queue, of_core))
        with tf.control_dependencies(enqueued):
            return tf.constant(0)

    def _finish(self, loop):
        """Assigns the variables; returns the results of the program."""
        step, device_step = self._step, self._device_step
        carried = [step.results[i] for i in device_step.device_values]
        updated = [device_step.handles[i] for i in device_step.updated]
        dtypes = [tensor.dtype for tensor in carried]
        dtypes += [handle.op.get_attr("dtype") for handle in updated]
        with tf.control_dependencies(loop):
            done, *values = tf.numpy_function(self._loop.finish, [], [tf.int64, *dtypes])
        assigned = []
        for handle, value in zip(updated, values[len(carried) :]):
            value.set_shape(handle.op.get_attr("shape"))
            assigned.append(gen_resource_variable_ops.assign_variable_op(handle, value))
        known = {tensor.name: value for tensor, value in zip(carried, values)}
        known.update(self._named(step.results, device_step.host_values, loop[2:]))
        graph = tf.compat.v1.get_default_graph()
        results = [graph.get_tensor_by_name(name) for name in self._program.results]
        with tf.control_dependencies([done, *assigned]):
            return [tf.identity(result) for result in self._on_host(results, known)]

    def _on_host(self, tensors, known):
        """Adds copies of what computes tensors of the program; returns the copies.

        `known` is `{name of a tensor of the program: its value}`.
        """
        operations = needed(self._program, tensors, known)
        graph_def, inputs = graph_pb2.GraphDef(), {}
        for op in self._program.operations.values():
            if op.name in operations:
                node_defs.copy_node(op, graph_def.node.add(), (), _DEVICE)
                inputs.update({tensor.name: tensor for tensor in op.inputs})
        inputs = {
            name: known[name] if name in known else self._first(tensor)
            for name, tensor in inputs.items()
            if name in known or tensor.op.name not in operations
        }
        names = [tensor.name for tensor in tensors if tensor.op.name in operations]
        copies = iter(tf.import_graph_def(graph_def, inputs, names, name="host") if names else ())
        return [
            next(copies) if tensor.op.name in operations else known.get(tensor.name, tensor)
            for tensor in tensors
        ]

    def _first(self, tensor):
        return tf.identity(self._program.on_first_core(tensor))

    @staticmethod
    def _named(tensors, indices, values):
        return {tensors[i].name: value for i, value in zip(indices, values)}
