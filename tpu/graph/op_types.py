"""Kinds of operations that more than one module asks for, by their types."""

from __future__ import annotations

READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "_ReadVariablesOp")
# Results that depend only on the shape of a tensor, which is the same on all cores.
SIZES = ("Shape", "ShapeN", "Size", "Rank")
SHAPES = (*SIZES, "ZerosLike", "OnesLike", "BroadcastGradientArgs")
BATCH_NORMS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")

# Collectives that only a TPU runs; on a single replica they return their first input.
TPU_COLLECTIVES = (
    *("AllToAll", "CollectivePermute", "CrossReplicaSum", "XlaAllReduce", "XlaReduceScatter"),
)
# Sums over the cores, and other exchanges of values between cores.
SUMS = ("CrossReplicaSum", "XlaAllReduce", "XlaReduceScatter", "CollectiveReduceV2")
EXCHANGES = ("AllToAll", "CollectivePermute", "XlaAllGather", "CollectiveGatherV2")

# Beginnings of the types of random operations: stateful ones, which differ from core to core, and
# those that an input determines.
STATEFUL_RANDOM = (
    *("Random", "TruncatedNormal", "ParameterizedTruncatedNormal", "Multinomial"),
    *("StatefulUniform", "StatefulStandardNormal", "StatefulTruncatedNormal", "StatefulRandom"),
)
RANDOM = (
    *STATEFUL_RANDOM,
    *("StatelessRandom", "StatelessTruncatedNormal", "StatelessMultinomial"),
    "StatelessParameterizedTruncatedNormal",
)
