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
from tensorflow.core.framework import attr_value_pb2, graph_pb2

from tpu.emulator import (
    agreement,
    collectives,
    constants,
    embedding_ops,
    functions,
    host_io,
    kernels,
)
from tpu.emulator.sharing import Sharing
from tpu.graph import nodes as node_defs
from tpu.graph.nodes import control_inputs, data_inputs, op_name, replace

DEVICE = "/device:CPU:0"
# Added to seeds per core, so that cores draw different random numbers.
_SEED_STRIDE = 7919
OUTSIDE = "outside"


def on_core(core: int, name: str) -> str:
    """Returns the name by which other cores refer to a node or tensor of a core."""
    return f"@{core}/{name}"  # no node has a "@" at its start


def outside(name: str) -> str:
    """Returns the name by which cores refer to a node or tensor outside."""
    return f"@{OUTSIDE}/{name}"


def split_scope(name: str):
    """Returns (scope, name): the scope is a core, `OUTSIDE`, or None for the core itself."""
    if name[0] != "@":
        return None, name
    scope, name = name[1:].split("/", 1)
    return (scope if scope == OUTSIDE else int(scope)), name


class CoreBuilder:
    """Builds the GraphDef of one core, or of a function that it calls.

    Attributes:
      graph_def: the nodes, and copies of functions.
      core: index of the core.
      sharing: what all cores share.
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
        sharing=None,
    ):
        """Starts an empty GraphDef, with a `functions.Library`.

        `nodes` is `{name: NodeDef}` of the original, to find the groups of collectives, `outside`
        `{name of an input: NodeDef of its source outside of the program}`. `path` names the call of
        the function that is built, "" for the program itself; `find_argument` returns the constant
        value of an argument of that function, `user_line` the "file:line" of a node, or "".
        `sharing` is what all cores share, None in a function.
        """
        self.graph_def = graph_pb2.GraphDef()
        self.core = core
        self.num_cores = num_cores
        self.library = library
        self.path = path
        self.user_line = user_line
        self.sharing = sharing or Sharing(set(), set(), set())
        self._nodes = nodes
        self._constants = constants.Constants({**nodes, **(outside or {})}, library, find_argument)

    def add_copy(self, original):
        """Adds a copy of a NodeDef, rewritten if needed."""
        node = self.graph_def.node.add()
        node.CopyFrom(original)
        if (
            "frame_name" in node.attr
            and node.attr["frame_name"].s.decode() not in self.sharing.loops
        ):
            node.attr["frame_name"].s += f"/core_{self.core}".encode()
        if functions.has_seed(node):
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
        node = self.graph_def.node.add(name=self.free_name(name), device=DEVICE)
        replace(node, kind, inputs, **attributes)
        return node.name

    def add_constant(self, name, value, dtype, controls=()) -> str:
        """Adds a constant; returns its name."""
        node = self.graph_def.node.add(name=self.free_name(name), device=DEVICE)
        node_defs.make_constant(node, value, dtype, controls)
        return node.name

    def add_queue(self, name, shared_name, dtypes, controls) -> str:
        """Adds the handle of a queue.

        One handle per use: a handle from outside a loop would need an Enter node.
        """
        attributes = {"capacity": host_io.QUEUE_CAPACITY, "shared_name": shared_name}
        return self.add(name, "FIFOQueueV2", controls, component_types=dtypes, **attributes)

    def on_core(self, core, name) -> str:
        """Returns the name by which this core refers to a node or tensor of another."""
        return on_core(core, name)

    def free_name(self, name) -> str:
        """Returns the name for a new node, which no node of the original has."""
        return node_defs.free_name(name, self._nodes)

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
        replace(node, "QueueDequeueV2", [handle, *controls], component_types=dtypes)

    def _outfeed(self, node):
        values, controls = data_inputs(node), control_inputs(node)
        dtypes = list(node.attr["dtypes"].list.type)
        after = [*controls, f"^{op_name(values[0])}"]
        handle = self.add_queue(f"{node.name}/queue", f"outfeed_{self.core}", dtypes, after)
        replace(node, "QueueEnqueueV2", [handle, *values, *controls], Tcomponents=dtypes)

    def _replica_id(self, node):
        node_defs.make_constant(node, self.core, tf.int32, node.input)

    def _identity(self, node):
        replace(node, "Identity", node.input, T=tf.as_dtype(node.attr["T"].type))

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
        node_defs.set_attributes(total, T=wide)
        replace(node, "Cast", [total.name], SrcT=wide, DstT=narrow)

    def _compile(self, node):
        """Calls a function of this operation that XLA compiles."""
        function = kernels.compiled_function(node)
        function.signature.name = self.library.new_name(function.signature.name, self.core)
        self.graph_def.library.function.add().CopyFrom(function)
        types = {"Tin": node_defs.input_types(node), "Tout": node_defs.output_types(node)}
        stateful = "Stateful" if function.signature.is_stateful else ""
        called = attr_value_pb2.NameAttrList(name=function.signature.name)
        replace(node, f"{stateful}PartitionedCall", node.input, f=called, **types)
        node.attr["_XlaMustCompile"].b = True


_REWRITES = {
    "InfeedDequeueTuple": CoreBuilder._infeed,
    "OutfeedEnqueueTuple": CoreBuilder._outfeed,
    "XlaReplicaId": CoreBuilder._replica_id,
    "XlaSharding": CoreBuilder._identity,
    agreement.OPERATION: agreement.rewrite,
    **embedding_ops.REWRITES,
    **dict.fromkeys(collectives.KINDS, collectives.rewrite),
    **dict.fromkeys(functions.SUMS, CoreBuilder._sum_in_float32),
}
