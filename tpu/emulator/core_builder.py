"""Builds the program of one emulated core: operations that only a TPU has are rewritten.

    InfeedDequeueTuple    dequeues from the queue "infeed_<core>"
    OutfeedEnqueueTuple   enqueues to the queue "outfeed_<core>"
    XlaReplicaId          the index of the core
    CrossReplicaSum, ...  exchange values through queues: see `collectives`
    Sum, Mean, ...        accumulate bfloat16 in float32
    RecvTPUEmbedding, ... look up and update tables: see `embedding_ops`
    calls                 of functions that hold any of these: call a copy for this core
    others                without a CPU kernel: functions that XLA compiles for the CPU

Nodes name their inputs as in a GraphDef, also those of functions.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tpu.emulator import (
    agreement,
    collectives,
    constants,
    copies,
    embedding_ops,
    functions,
    kernels,
)
from tpu.emulator.graph_analysis import free_name

DEVICE = "/device:CPU:0"
QUEUE_CAPACITY = 4
# Added to seeds per core, so that cores draw different random numbers.
_SEED_STRIDE = 7919


class CoreBuilder:
    """Builds the GraphDef of one core, or of a function that it calls.

    Attributes:
      graph_def: the nodes, and copies of functions.
      core: index of the core.
    """

    def __init__(
        self,
        core,
        num_cores,
        library,
        nodes,
        path="",
        find_argument=None,
        user_line=lambda _: "",
        outside=None,
    ):
        """Starts an empty GraphDef.

        Args:
          core: index of the core.
          num_cores: number of cores.
          library: a `functions.Library`.
          nodes: `{name: NodeDef}` of the original, to find the groups of collectives.
          path: names the call of the function that is built; "" for the program itself.
          find_argument: a function from the name of an argument of the function to its constant
            value; None for the program itself.
          user_line: function from the name of a node to the "file:line" of user code, or "".
          outside: `{name of an input: NodeDef of its source outside of the program}`.
        """
        self.graph_def = graph_pb2.GraphDef()
        self.core = core
        self.num_cores = num_cores
        self.library = library
        self.path = path
        self.user_line = user_line
        self._nodes = nodes
        self._constants = constants.Constants({**nodes, **(outside or {})}, library, find_argument)

    def add_copy(self, original):
        """Adds a copy of a NodeDef, rewritten if needed."""
        node = self.graph_def.node.add()
        node.CopyFrom(original)
        if "frame_name" in node.attr:
            node.attr["frame_name"].s += f"/core_{self.core}".encode()
        if copies.has_seed(node):
            node.attr["seed2"].i += _SEED_STRIDE * self.core
        rewrite = _REWRITES.get(node.op)
        if rewrite:
            rewrite(self, node)
        elif self.library.called(node):
            functions.call_copies(self, node)
        elif not kernels.has_cpu_kernel(node):
            self._compile(node)

    def add(self, name, kind, inputs, **attributes) -> str:
        """Adds a node; returns its name, which is another if the program has a node of the name."""
        name = self.free_name(name)
        node = self.graph_def.node.add(name=name, device=DEVICE)
        self.replace(node, kind, inputs, **attributes)
        return name

    def replace(self, node, kind, inputs, **attributes):
        """Makes `node` another operation."""
        node.op = kind
        del node.input[:]
        node.input.extend(inputs)
        node.attr.clear()
        for name, value in attributes.items():
            _set(node.attr[name], value)

    def add_constant(self, name, value, dtype, controls=()) -> str:
        """Adds a constant; returns its name."""
        name = self.add(name, "Const", controls, dtype=tf.as_dtype(dtype))
        tensor = tf.make_tensor_proto(value, dtype)
        self.graph_def.node[-1].attr["value"].tensor.CopyFrom(tensor)
        return name

    def add_queue(self, name, shared_name, dtypes, controls) -> str:
        """Adds the handle of a queue.

        One handle per use: a handle from outside a loop would need an Enter node.
        """
        attributes = {"capacity": QUEUE_CAPACITY, "shared_name": shared_name}
        return self.add(name, "FIFOQueueV2", controls, component_types=dtypes, **attributes)

    def free_name(self, name) -> str:
        """Returns the name for a new node, which no node of the original has."""
        return free_name(name, self._nodes)

    def is_switch(self, tensor_name) -> bool:
        """True if a tensor is an output of a Switch of the original."""
        node = self._nodes.get(op_name(tensor_name))
        return node is not None and node.op in ("Switch", "RefSwitch")

    def names_of(self, op_type) -> list[str]:
        """Returns the names of the nodes of a type in the original."""
        return [name for name, node in self._nodes.items() if node.op == op_type]

    def constant(self, tensor_name):
        """Returns the value of a constant input of a node, as an array."""
        return self._constants.find(tensor_name)

    def _infeed(self, node):
        controls = list(node.input)
        dtypes = list(node.attr["dtypes"].list.type)
        handle = self.add_queue(f"{node.name}/queue", f"infeed_{self.core}", dtypes, controls)
        self.replace(node, "QueueDequeueV2", [handle, *controls], component_types=dtypes)

    def _outfeed(self, node):
        values, controls = split_inputs(node)
        dtypes = list(node.attr["dtypes"].list.type)
        after = [*controls, f"^{op_name(values[0])}"]
        handle = self.add_queue(f"{node.name}/queue", f"outfeed_{self.core}", dtypes, after)
        self.replace(node, "QueueEnqueueV2", [handle, *values, *controls], Tcomponents=dtypes)

    def _replica_id(self, node):
        controls = list(node.input)
        self.replace(node, "Const", controls, dtype=tf.int32)
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(self.core, tf.int32))

    def _identity(self, node):
        self.replace(node, "Identity", list(node.input), T=node.attr["T"].type)

    def _collective(self, node):
        collectives.rewrite(self, node)

    def _sum_in_float32(self, node):
        """Rewrites a bfloat16 sum, which a CPU would accumulate in bfloat16."""
        narrow, wide = tf.bfloat16, tf.float32
        if node.attr["T"].type != narrow:
            return
        total = self.graph_def.node.add()
        total.CopyFrom(node)
        total.name = self.free_name(f"{node.name}/float32")
        casted = self.add(f"{node.name}/cast", "Cast", [node.input[0]], SrcT=narrow, DstT=wide)
        total.input[0] = casted
        _set(total.attr["T"], wide)
        self.replace(node, "Cast", [total.name], SrcT=wide, DstT=narrow)

    def _compile(self, node):
        """Calls a function of this operation that XLA compiles."""
        function = kernels.compiled_function(node)
        function.signature.name = self.library.new_name(function.signature.name, self.core)
        self.graph_def.library.function.add().CopyFrom(function)
        types = kernels.input_types(node), kernels.output_types(node)
        stateful = "Stateful" if function.signature.is_stateful else ""
        self.replace(node, f"{stateful}PartitionedCall", list(node.input), Tin=types[0])
        _set(node.attr["Tout"], types[1])
        node.attr["f"].func.name = function.signature.name
        node.attr["_XlaMustCompile"].b = True


def split_inputs(node):
    """Returns the data inputs and the control inputs of a node."""
    return [i for i in node.input if i[0] != "^"], [i for i in node.input if i[0] == "^"]


def op_name(tensor_name) -> str:
    """Returns the name of the operation of a tensor."""
    return tensor_name.split(":")[0]


def _set(attribute, value):
    if isinstance(value, tf.DType):
        attribute.type = value.as_datatype_enum
    elif isinstance(value, int):
        attribute.i = value
    elif isinstance(value, str):
        attribute.s = value.encode()
    else:
        attribute.list.type.extend(tf.as_dtype(dtype).as_datatype_enum for dtype in value)


_REWRITES = {
    "InfeedDequeueTuple": CoreBuilder._infeed,
    "OutfeedEnqueueTuple": CoreBuilder._outfeed,
    "XlaReplicaId": CoreBuilder._replica_id,
    "XlaSharding": CoreBuilder._identity,
    agreement.OPERATION: agreement.rewrite,
    **embedding_ops.REWRITES,
    **dict.fromkeys(collectives.KINDS, CoreBuilder._collective),
    **dict.fromkeys(copies.SUMS, CoreBuilder._sum_in_float32),
}
