"""What PJRT devices do not run: found before anything runs."""

from __future__ import annotations

import functools
import re

from tensorflow.compiler.xla.service import hlo_pb2

from tpu.findings import user_line
from tpu.graph import nodes as node_defs
from tpu.graph import tpu_kernels
from tpu.graph.placement import Placement
from tpu.graph.replicated_graph import ReplicatedGraph

_EMBEDDINGS = (
    *("RecvTPUEmbeddingActivations", "SendTPUEmbeddingGradients", "XlaRecvTPUEmbeddingActivations"),
    "XlaSendTPUEmbeddingGradients",
)
_NODE = re.compile(r"\{\{node ([^}]+)\}\}")
_ON_DEVICES = ("CrossReplicaSum", "CollectivePermute", "AllToAll", "XlaReplicaId")


def check(program: ReplicatedGraph, operations) -> None:
    """Raises NotImplementedError, with the line of the program, for what devices cannot run.

    `operations` are those of the program with its TPUReplicateMetadata.
    """
    for op in operations:
        if op.type == "TPUReplicateMetadata" and op.get_attr("num_cores_per_replica") > 1:
            raise NotImplementedError(
                "PJRT devices do not support model parallelism (num_cores_per_replica="
                f"{op.get_attr('num_cores_per_replica')}). Set it to 1: each device is a replica"
            )
    for name, op in program.operations.items():
        if name in program.live and op.type in _EMBEDDINGS:
            raise NotImplementedError(
                f"PJRT devices have no TPU embeddings (at {_place(op)}). Use tf.nn.embedding_lookup"
            )
    outside = list(Placement(program).on_host.values())
    if outside:
        raise NotImplementedError(
            f"PJRT devices do not support outside compilation: {outside[0].type} (at "
            f"{_place(outside[0])}). Send the values through host_call"
        )


def explain(program: ReplicatedGraph, error: Exception) -> str:
    """Returns why XLA does not lower a program, in a line: the operation, its line, what to do."""
    for op in _on_core(program):
        fault = tpu_kernels.find_fault(op)
        if fault is not None and fault[0] != "placeholder":  # also arguments of functions
            return f"{fault[1]} (at {_place(op)})"
    reason = " ".join(str(error).split())
    named = [program.operations.get(name) for name in _NODE.findall(reason)]
    places = [f" (at {_place(op)})" for op in named if op is not None]
    return f"XLA cannot compile the step{''.join(places[:1])}: {reason[:400]}"


def _on_core(program):
    """Yields the operations of the step, then those of its functions."""
    on_core = list(Placement(program).on_core.values())
    yield from on_core
    graph = on_core[0].graph
    find = functools.partial(node_defs.definition, graph)
    for name in node_defs.all_called([op.node_def for op in on_core], find):
        yield from node_defs.function_graph(graph, name).get_operations()


def dynamic_shape(hlo: bytes, program: ReplicatedGraph) -> str:
    """Returns "TYPE (at file:line)" of a tensor whose shape depends on data; "" if there is none.

    Args:
      hlo: the step, a serialized HloModuleProto.
      program: the same step.
    """
    module = hlo_pb2.HloModuleProto.FromString(hlo)
    for computation in module.computations:
        for instruction in computation.instructions:
            if any(instruction.shape.is_dynamic_dimension):
                name = instruction.metadata.op_name
                while name and name not in program.operations:  # that of a call around it
                    name = name.rpartition("/")[0]
                op = program.operations.get(name)
                return f"{op.type} (at {_place(op)})" if op is not None else "an unknown operation"
    return ""


def check_host_operation(op) -> None:
    """Raises NotImplementedError if the condition of the loop needs an operation of the devices."""
    if op.type in _ON_DEVICES or (op.op_def.is_stateful and op.type != "ReadVariableOp"):
        raise NotImplementedError(
            f"the loop around the steps ends by a value of the step: {op.type} (at {_place(op)}). "
            "PJRT devices run loops of iterations_per_loop steps"
        )


def _place(op):
    return user_line(op) or "unknown line"
