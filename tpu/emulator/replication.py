"""Copies the program of a TPU core for each emulated core, with CPU kernels.

The `ReplicatedGraph` is copied once per core, and TPU operations are rewritten:

    InfeedDequeueTuple    dequeues from the queue "infeed_<core>"
    OutfeedEnqueueTuple   enqueues to the queue "outfeed_<core>"
    CrossReplicaSum       the first core of each group dequeues the values of the others, adds them
                          in the order of the cores, and enqueues the sum for each of them
    Sum, Mean, ...        accumulate bfloat16 in float32
    loops                 run one iteration at a time

If one core fails, the session cancels the queue operations of the others, so all cores end.
Variables: core 0 uses the variables of the graph, the other cores use copies that each session.run
creates again. The TPU runtime, too, writes back only the variables of core 0.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.ops import gen_data_flow_ops, gen_resource_variable_ops

from tpu.emulator.replicated_graph import ReplicatedGraph, copy_node, group_assignment

_UNSUPPORTED = ("AllToAll", "CollectivePermute")
_DEVICE = "/device:CPU:0"
_QUEUE_CAPACITY = 4
# Added to seeds per core, so that cores draw different random numbers.
_SEED_STRIDE = 7919


def queue(name, dtypes):
    """Returns the handle of a FIFO queue of any shapes, shared by name."""
    return gen_data_flow_ops.fifo_queue_v2(dtypes, capacity=_QUEUE_CAPACITY, shared_name=name)


def run_on_cores(operations, num_cores):
    """Adds a copy of the replicated graph for each core to the default graph.

    Args:
      operations: the replicated graph with its TPUReplicatedInputs and TPUReplicatedOutputs.
      num_cores: number of copies.

    Returns:
      The results of core 0, available once all cores are done.

    Raises:
      NotImplementedError: an operation that is not emulated.
      ValueError: an external resource that is not a variable.
    """
    program = ReplicatedGraph(operations)
    unsupported = {op.type for op in program.operations.values()} & set(_UNSUPPORTED)
    if unsupported:
        raise NotImplementedError(f"the emulator does not support {', '.join(sorted(unsupported))}")
    graph = tf.compat.v1.get_default_graph()
    with graph.control_dependencies(None), graph.name_scope(None), graph.device(_DEVICE):
        variables, ready = _copy_variables(program, num_cores)
        with graph.control_dependencies([_group([*ready, *program.external_controls])]):
            inputs = [_inputs(program, core, variables) for core in range(num_cores)]
        results = [_copy(program, core, inputs[core]) for core in range(num_cores)]
        with graph.control_dependencies(
            [_group([tensor for result in results for tensor in result])]
        ):
            return [tf.identity(tensor) for tensor in results[0]]


def _group(dependencies):
    """Returns one operation that runs after all dependencies (fewer edges than all pairs)."""
    with tf.control_dependencies(dependencies):
        return tf.no_op()


def _copy_variables(program, num_cores):
    """Returns `{name of a handle: [handle of core i]}`, and the ops that create the copies."""
    variables, ready = {}, []
    for name, handle in program.external_tensors.items():
        if handle.dtype != tf.resource:
            continue
        if handle.op.type != "VarHandleOp":
            raise ValueError(
                f"the TPU computation uses '{handle.op.name}' from outside, which is a "
                f"{handle.op.type}, not a variable"
            )
        dtype, shape = handle.op.get_attr("dtype"), handle.op.get_attr("shape")
        value = gen_resource_variable_ops.read_variable_op(handle, dtype)
        variables[name] = [handle]
        for core in range(1, num_cores):
            copy = gen_resource_variable_ops.var_handle_op(
                dtype, shape, shared_name=f"core_{core}/{handle.op.name}", name=f"core_{core}_copy"
            )
            variables[name].append(copy)
            ready.append(gen_resource_variable_ops.assign_variable_op(copy, value))
    return variables, ready


def _inputs(program, core, variables):
    """Returns `{name of an external tensor: its value on one core}`."""

    def value_on_core(name, tensor):
        if name in program.replicated_inputs:
            return program.replicated_inputs[name][core]
        return variables[name][core] if name in variables else tensor

    # tf.identity adds the surrounding control dependencies.
    return {
        name: tf.identity(value_on_core(name, tensor))
        for name, tensor in program.external_tensors.items()
    }


def _copy(program, core, inputs):
    """Imports the program of one core into the graph; returns its results."""
    builder = _CoreBuilder(core)
    for op in program.operations.values():
        builder.add_copy(op, program.operations)
    graph = tf.compat.v1.get_default_graph()
    builder.graph_def.versions.producer = graph.graph_def_versions.producer
    return tf.import_graph_def(builder.graph_def, inputs, program.results, name=f"core_{core}")


class _CoreBuilder:
    """Builds the GraphDef of one core."""

    def __init__(self, core):
        self.graph_def = graph_pb2.GraphDef()
        self._core = core

    def add_copy(self, op, inside):
        """Adds an operation of the replicated graph, rewritten if only a TPU has a kernel."""
        node = self.graph_def.node.add()
        # Control inputs from outside are added to the inputs: see run_on_cores.
        copy_node(op, node, inside, _DEVICE)
        if "frame_name" in node.attr:
            node.attr["frame_name"].s += f"/core_{self._core}".encode()
        if "seed2" in node.attr and (node.attr["seed"].i or node.attr["seed2"].i):
            node.attr["seed2"].i += _SEED_STRIDE * self._core
        if "parallel_iterations" in node.attr:
            node.attr["parallel_iterations"].i = 1  # keeps sums of two iterations apart
        rewrite = _REWRITES.get(op.type)
        if rewrite:
            rewrite(self, node, op)

    def infeed(self, node, op):
        """Rewrites an InfeedDequeueTuple."""
        controls = list(node.input)
        dtypes = [tensor.dtype for tensor in op.outputs]
        handle = self._queue(f"{node.name}/queue", f"infeed_{self._core}", dtypes, controls)
        self._replace(node, "QueueDequeueV2", [handle, *controls], component_types=dtypes)

    def outfeed(self, node, op):
        """Rewrites an OutfeedEnqueueTuple."""
        values, controls = _split_inputs(node.input)
        dtypes = [tensor.dtype for tensor in op.inputs]
        after = [*controls, f"^{_op_name(values[0])}"]
        handle = self._queue(f"{node.name}/queue", f"outfeed_{self._core}", dtypes, after)
        self._replace(node, "QueueEnqueueV2", [handle, *values, *controls], Tcomponents=dtypes)

    def cross_replica_sum(self, node, op):
        """Rewrites a CrossReplicaSum: the first core of the group adds the values of all."""
        (value, _), controls = _split_inputs(node.input)
        dtype = op.inputs[0].dtype
        (group,) = (row for row in group_assignment(op) if self._core in row)
        after = [f"^{_op_name(value)}"]

        def queue_handle(kind, member):
            name = f"{op.name}/{kind}_{member}"
            return self._queue(f"{name}/queue", name, [dtype], after)

        def enqueue(kind, member, tensor):
            inputs = [queue_handle(kind, member), tensor]
            name = f"{op.name}/{kind}_{member}/enqueue"
            return "^" + self._add(name, "QueueEnqueueV2", inputs, Tcomponents=[dtype])

        def dequeue(kind, member):
            inputs = [queue_handle(kind, member)]
            name = f"{op.name}/{kind}_{member}/dequeue"
            return self._add(name, "QueueDequeueV2", inputs, component_types=[dtype])

        if self._core != group[0]:
            sent = enqueue("summand", self._core, value)
            inputs = [queue_handle("sum", self._core), sent, *controls]
            self._replace(node, "QueueDequeueV2", inputs, component_types=[dtype])
            return
        summands = [value, *(dequeue("summand", member) for member in group[1:])]
        name = f"{op.name}/add"
        total = self._add(name, "AddN", summands, T=dtype, N=len(summands))
        sent = [enqueue("sum", member, total) for member in group[1:]]
        self._replace(node, "Identity", [total, *sent, *controls], T=dtype)

    def sum_in_float32(self, node, op):
        """Rewrites a bfloat16 sum, which a CPU would accumulate in bfloat16."""
        narrow, wide = tf.bfloat16, tf.float32
        if op.get_attr("T") != narrow:
            return
        total = self.graph_def.node.add()
        total.CopyFrom(node)
        total.name = f"{node.name}/float32"
        total.input[0] = self._add(
            f"{node.name}/cast", "Cast", [node.input[0]], SrcT=narrow, DstT=wide
        )
        _set(total.attr["T"], wide)
        self._replace(node, "Cast", [total.name], SrcT=wide, DstT=narrow)

    def _queue(self, name, shared_name, dtypes, controls):
        # One handle per use: a handle from outside a loop would need an Enter node.
        return self._add(
            name,
            "FIFOQueueV2",
            controls,
            component_types=dtypes,
            capacity=_QUEUE_CAPACITY,
            shared_name=shared_name,
        )

    def _add(self, name, kind, inputs, **attributes):
        node = self.graph_def.node.add(name=name, device=_DEVICE)
        self._replace(node, kind, inputs, **attributes)
        return name

    def _replace(self, node, kind, inputs, **attributes):
        node.op = kind
        del node.input[:]
        node.input.extend(inputs)
        node.attr.clear()
        for name, value in attributes.items():
            _set(node.attr[name], value)


def _set(attribute, value):
    if isinstance(value, tf.DType):
        attribute.type = value.as_datatype_enum
    elif isinstance(value, int):
        attribute.i = value
    elif isinstance(value, str):
        attribute.s = value.encode()
    else:
        attribute.list.type.extend(dtype.as_datatype_enum for dtype in value)


def _split_inputs(inputs):
    """Returns the data inputs and the control inputs of a node."""
    return [i for i in inputs if i[0] != "^"], [i for i in inputs if i[0] == "^"]


def _op_name(tensor_name):
    return tensor_name.split(":")[0]


_REWRITES = {
    "InfeedDequeueTuple": _CoreBuilder.infeed,
    "OutfeedEnqueueTuple": _CoreBuilder.outfeed,
    "CrossReplicaSum": _CoreBuilder.cross_replica_sum,
    **dict.fromkeys(("BiasAddGrad", "Mean", "Sum"), _CoreBuilder.sum_in_float32),
}
