"""Cuts the program of a core into a step for the devices and what stays on the host.

The host keeps the loop around the steps, with the values that its condition needs: the number of
the step in training, the signal to stop in evaluation and prediction. The devices get the step as
HLO; they keep its variables, and the other values that the loop carries, such as the loss.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from tpu.graph import hlo, random_numbers
from tpu.graph.placement import Placement
from tpu.graph.replicated_graph import ReplicatedGraph
from tpu.graph.single_step import SingleStep
from tpu.graph.walks import ancestors
from tpu.pjrt import limits
from tpu.pjrt.client import Program


class DeviceStep:
    """The step of a core on the devices, lowered; and the values that it exchanges with the host.

    Attributes:
      program: the `client.Program`.
      infeed: tensors of the program that come from the infeed, new at each step.
      host_values: indices of the carried values that the host computes. Those that the step reads
        come after the infeed, then the number of the step if it draws random numbers.
      read_values: those of `host_values` that the step reads.
      is_random: True if the step draws random numbers.
      arguments: tensors from outside of the program, constant during a loop.
      device_values: indices of the carried values that stay on the devices.
      handles: the handles of the variables, after `device_values` in the state of the devices.
      outfeed: tensors that each device returns after each step.
      dynamic_shape: place of a shape that depends on data; "" if all are static.
    """

    def __init__(self, graph: tf.Graph, operations, step: SingleStep):
        """Lowers the step.

        Args:
          graph: that of the operations.
          operations: the replicated graph of TPUEstimator, as `emulator.Cores` get it.
          step: the step in it.

        Raises:
          NotImplementedError: devices cannot run the program.
        """
        program = ReplicatedGraph(operations)
        limits.check(program, operations)
        self.host_values = _host_values(program, step)
        self.device_values = [i for i in range(len(step.inputs)) if i not in self.host_values]
        program.results = [step.results[i].name for i in self.device_values]
        self.is_random = random_numbers.is_random(graph, program)
        used = _used(program)
        self.read_values = [i for i in self.host_values if step.inputs[i].name in used]
        self.arguments = [
            tensor
            for name, tensor in program.external_tensors.items()
            if name in used and tensor.dtype != tf.resource and tf.get_static_value(tensor) is None
        ]
        each_step = [step.inputs[i] for i in self.read_values]
        number = None
        if self.is_random:
            with graph.control_dependencies(None):
                number = tf.constant(0, tf.int64, name="step_number")
            each_step.append(number)
        carried = [step.inputs[i] for i in self.device_values]
        given = [*each_step, *self.arguments, *carried]
        try:
            lowered = hlo.lower(graph, program, given, number)
        except (ValueError, tf.errors.OpError) as error:
            raise NotImplementedError(limits.explain(program, error)) from error
        self.dynamic_shape = limits.dynamic_shape(lowered.module, program)
        self.infeed = lowered.received[: len(lowered.received) - len(given)]
        self.handles = [
            program.on_first_core(program.external_tensors[name]) for name in lowered.variables
        ]
        self.outfeed = [graph.get_tensor_by_name(name) for name in lowered.results[len(carried) :]]
        self.program = Program(
            hlo=lowered.module,
            num_infeed=len(self.infeed) + len(each_step),
            num_arguments=len(self.arguments),
            num_state=len(carried) + len(self.handles),
            outfeed=list(range(len(carried), len(lowered.results))),
            state_results=[*range(len(carried)), *_updates(lowered)],
        )

    @property
    def updated(self) -> list[int]:
        """Indices of the variables that the step assigns."""
        results = self.program.state_results[len(self.device_values) :]
        return [i for i, result in enumerate(results) if result is not None]


def _host_values(program, step):
    """Returns the indices of the values that the condition of the loop needs, directly or not.

    Raises:
      NotImplementedError: their computation needs more than the infeed and other such values.
    """
    names = {tensor.name: i for i, tensor in enumerate(step.inputs)}
    found, pending = set(), [step.goes_on]
    while pending:
        for op in needed(program, [pending.pop()], names).values():
            limits.check_host_operation(op)
            for tensor in op.inputs:
                i = names.get(tensor.name)
                if i is not None and i not in found:
                    found.add(i)
                    pending.append(step.results[i])
    return sorted(found)


def needed(program: ReplicatedGraph, tensors, stops) -> dict[str, tf.Operation]:
    """Returns `{name: operation}` of the program's operations that compute tensors.

    Does not go beyond tensors whose names are in `stops`, nor beyond the infeed.
    """
    infeed = {tensor.name for tensor in program.infeed}

    def parents(op):
        return [
            tensor.op
            for tensor in op.inputs
            if tensor.name not in stops
            and tensor.name not in infeed
            and tensor.op.name in program.operations
        ]

    first = [tensor.op for tensor in tensors if tensor.name not in stops]
    return ancestors([op for op in first if op.name in program.operations], parents)


def _used(program):
    """Returns the names of the tensors that operations on the devices read."""
    on_core = Placement(program).on_core.values()
    return {*program.results, *(tensor.name for op in on_core for tensor in op.inputs)}


def _updates(lowered):
    """Returns, for each variable, the index of its new value in the results; None if unchanged."""
    module = hlo_pb2.HloModuleProto.FromString(lowered.module)
    first = len(lowered.received)
    updates = {
        entry.parameter_number - first: entry.output_shape_index[0]
        for entry in module.input_output_alias.entries
    }
    shape = module.host_program_shape
    assert len(shape.parameters) == first + len(lowered.variables), "a parameter was dropped"
    assert len(shape.result.tuple_shapes) == len(lowered.results) + len(updates)
    return [updates.get(i) for i in range(len(lowered.variables))]
