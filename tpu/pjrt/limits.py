"""What PJRT devices do not run: found before anything runs."""

from __future__ import annotations

from tpu.findings import user_line
from tpu.graph.placement import Placement
from tpu.graph.replicated_graph import ReplicatedGraph

_EMBEDDINGS = (
    *("RecvTPUEmbeddingActivations", "SendTPUEmbeddingGradients", "XlaRecvTPUEmbeddingActivations"),
    "XlaSendTPUEmbeddingGradients",
)
_ON_DEVICES = ("CrossReplicaSum", "CollectivePermute", "AllToAll", "XlaReplicaId")


def check(program: ReplicatedGraph) -> None:
    """Raises NotImplementedError, with the line of the program, for what devices cannot run."""
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


def check_host_operation(op) -> None:
    """Raises NotImplementedError if the condition of the loop needs an operation of the devices."""
    if op.type in _ON_DEVICES or (op.op_def.is_stateful and op.type != "ReadVariableOp"):
        raise NotImplementedError(
            f"the loop around the steps ends by a value of the step: {op.type} (at {_place(op)}). "
            "PJRT devices run loops of iterations_per_loop steps"
        )


def _place(op):
    return user_line(op) or "unknown line"
