"""Copies of a TPU computation, one a core, that run on a CPU.

The cluster that TPUEstimator leaves in the graph (see `cluster`) is copied once a core, and what
only a TPU can do is put in terms of queues:

    InfeedDequeueTuple    takes from the queue "infeed_<core>"
    OutfeedEnqueueTuple   puts into the queue "outfeed_<core>"
    CrossReplicaSum       the first core of each group takes from a queue for each other one, adds
                          in the order of the cores, and hands the sum back through queues
    Sum, Mean, ...        add up bfloat16 in float32
    loops                 make one iteration after the other

A core that waits for a queue is cancelled when another one fails, so an error ends them all.
Variables: core 0 works on the variables of the graph, the others on copies that are made anew at
each session.run; as on a TPU, whose runtime writes back only what core 0 has.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.ops import gen_data_flow_ops, gen_resource_variable_ops

from tpu.emulator import replicated_graph as clusters
from tpu.emulator.replicated_graph import Cluster

_UNSUPPORTED = ("AllToAll", "CollectivePermute")
_DEVICE = "/device:CPU:0"
_QUEUE_CAPACITY = 4
# Cores draw different random numbers from the same seed.
_SEED_STRIDE = 7919


def queue(name, dtypes):
    """Returns the handle of a queue of any shapes; the same name is the same queue."""
    return gen_data_flow_ops.fifo_queue_v2(dtypes, capacity=_QUEUE_CAPACITY, shared_name=name)


def run_on_cores(operations, num_cores):
    """Adds a copy of the cluster for each core to the default graph.

    Args:
      operations: the cluster, its TPUReplicatedInputs and its TPUReplicatedOutputs.
      num_cores: number of copies.

    Returns:
      The results of core 0, tensors that are there when all cores are done.

    Raises:
      NotImplementedError: the cluster holds an operation that is not emulated.
      ValueError: the cluster takes a resource that is no variable from outside.
    """
    cluster = Cluster(operations)
    refused = {op.type for op in cluster.operations.values()} & set(_UNSUPPORTED)
    if refused:
        raise NotImplementedError(f"the emulator cannot run {', '.join(sorted(refused))}")
    graph = tf.compat.v1.get_default_graph()
    with graph.control_dependencies(None), graph.name_scope(None), graph.device(_DEVICE):
        variables, ready = _variables_of_cores(cluster, num_cores)
        with graph.control_dependencies([_all_of([*ready, *cluster.external_controls])]):
            inputs = [_inputs(cluster, core, variables) for core in range(num_cores)]
        results = [_copy(cluster, core, inputs[core]) for core in range(num_cores)]
        with graph.control_dependencies(
            [_all_of([tensor for result in results for tensor in result])]
        ):
            return [tf.identity(tensor) for tensor in results[0]]


def _all_of(things):
    """Returns one operation for many to wait for, in the place of an edge for every pair."""
    with tf.control_dependencies(things):
        return tf.no_op()


def _variables_of_cores(cluster, num_cores):
    """Returns `{name of a handle: [handle of core i]}`, and the ops that make the copies."""
    variables, ready = {}, []
    for name, handle in cluster.external_tensors.items():
        if handle.dtype != tf.resource:
            continue
        if handle.op.type != "VarHandleOp":
            raise ValueError(
                f"the TPU computation uses '{handle.op.name}' from outside, which is a "
                f"{handle.op.type} and no variable"
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


def _inputs(cluster, core, variables):
    """Returns `{name of an external tensor: what one core gets in its place}`."""

    def of_core(name, tensor):
        if name in cluster.replicated:
            return cluster.replicated[name][core]
        return variables[name][core] if name in variables else tensor

    # Identities, for the sake of the control inputs around them.
    return {
        name: tf.identity(of_core(name, tensor))
        for name, tensor in cluster.external_tensors.items()
    }


def _copy(cluster, core, inputs):
    """Imports the cluster as the program of one core; returns its results."""
    program = _Program(core)
    for op in cluster.operations.values():
        program.add_copy(op, cluster.operations)
    graph = tf.compat.v1.get_default_graph()
    program.graph_def.versions.producer = graph.graph_def_versions.producer
    return tf.import_graph_def(program.graph_def, inputs, cluster.results, name=f"core_{core}")


class _Program:
    """The GraphDef of one core in the making."""

    def __init__(self, core):
        self.graph_def = graph_pb2.GraphDef()
        self._core = core

    def add_copy(self, op, inside):
        """Adds an operation of the cluster, rewritten where only a TPU has it."""
        node = self.graph_def.node.add()
        # What waits for operations outside waits through its inputs: see run_on_cores.
        clusters.copy_node(op, node, inside, _DEVICE)
        if "frame_name" in node.attr:
            node.attr["frame_name"].s += f"/core_{self._core}".encode()
        if "seed2" in node.attr and (node.attr["seed"].i or node.attr["seed2"].i):
            node.attr["seed2"].i += _SEED_STRIDE * self._core
        if "parallel_iterations" in node.attr:
            node.attr["parallel_iterations"].i = 1  # else sums of two iterations would mix
        rewrite = _REWRITES.get(op.type)
        if rewrite:
            rewrite(self, node, op)

    def infeed(self, node, op):
        """Rewrites an InfeedDequeueTuple."""
        controls = list(node.input)
        dtypes = [tensor.dtype for tensor in op.outputs]
        handle = self._queue(f"{node.name}/queue", f"infeed_{self._core}", dtypes, controls)
        self._become(node, "QueueDequeueV2", [handle, *controls], component_types=dtypes)

    def outfeed(self, node, op):
        """Rewrites an OutfeedEnqueueTuple."""
        values, controls = _parts(node.input)
        dtypes = [tensor.dtype for tensor in op.inputs]
        after = [*controls, f"^{_operation(values[0])}"]
        handle = self._queue(f"{node.name}/queue", f"outfeed_{self._core}", dtypes, after)
        self._become(node, "QueueEnqueueV2", [handle, *values, *controls], Tcomponents=dtypes)

    def cross_replica_sum(self, node, op):
        """Rewrites a CrossReplicaSum: member i of a group gives to the first one, and takes."""
        (value, _), controls = _parts(node.input)
        dtype = op.inputs[0].dtype
        (group,) = (row for row in clusters.groups_of(op) if self._core in row)
        after = [f"^{_operation(value)}"]

        def mailbox(kind, member):
            name = f"{op.name}/{kind}_{member}"
            return self._queue(f"{name}/queue", name, [dtype], after)

        def give(kind, member, tensor):
            inputs = [mailbox(kind, member), tensor]
            name = f"{op.name}/{kind}_{member}/give"
            return "^" + self._add(name, "QueueEnqueueV2", inputs, Tcomponents=[dtype])

        def take(kind, member):
            inputs = [mailbox(kind, member)]
            name = f"{op.name}/{kind}_{member}/take"
            return self._add(name, "QueueDequeueV2", inputs, component_types=[dtype])

        if self._core != group[0]:
            given = give("summand", self._core, value)
            inputs = [mailbox("sum", self._core), given, *controls]
            self._become(node, "QueueDequeueV2", inputs, component_types=[dtype])
            return
        summands = [value, *(take("summand", member) for member in group[1:])]
        name = f"{op.name}/add"
        total = self._add(name, "AddN", summands, T=dtype, N=len(summands))
        given = [give("sum", member, total) for member in group[1:]]
        self._become(node, "Identity", [total, *given, *controls], T=dtype)

    def sum_in_float32(self, node, op):
        """Rewrites a sum of bfloat16, which a CPU would add up in bfloat16."""
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
        self._become(node, "Cast", [total.name], SrcT=wide, DstT=narrow)

    def _queue(self, name, shared_name, dtypes, controls):
        # Named anew wherever it is used: a handle from outside a loop would have to enter it.
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
        self._become(node, kind, inputs, **attributes)
        return name

    def _become(self, node, kind, inputs, **attributes):
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


def _parts(inputs):
    """Returns the data inputs and the control inputs of a node."""
    return [i for i in inputs if i[0] != "^"], [i for i in inputs if i[0] == "^"]


def _operation(tensor_name):
    return tensor_name.split(":")[0]


_REWRITES = {
    "InfeedDequeueTuple": _Program.infeed,
    "OutfeedEnqueueTuple": _Program.outfeed,
    "CrossReplicaSum": _Program.cross_replica_sum,
    **dict.fromkeys(("BiasAddGrad", "Mean", "Sum"), _Program.sum_in_float32),
}
