"""Operations that need a separate copy on each emulated core."""

from __future__ import annotations

import tensorflow as tf

from tpu.emulator import collectives, kernels

SUMS = ("BiasAddGrad", "Mean", "Sum")
# Operations of a TPU that `core_builder` rewrites.
TPU_OPERATIONS = (
    *("InfeedDequeueTuple", "OutfeedEnqueueTuple", "XlaReplicaId", "XlaSharding"),
    *collectives.KINDS,
    *("RecvTPUEmbeddingActivations", "SendTPUEmbeddingGradients", "TPUEmbeddingActivations"),
)


def differs(node, library, num_cores) -> bool:
    """True if the copies of a NodeDef differ, or only a TPU has a kernel for it."""
    if node.op in SUMS:
        return node.attr["T"].type == tf.bfloat16
    if "frame_name" in node.attr or node.op in TPU_OPERATIONS:
        return True
    if num_cores > 1 and has_seed(node):
        return True
    called = library.called(node)
    if called:
        return any(library.needs_copy(name) for name in called)
    return not kernels.has_cpu_kernel(node)


def has_seed(node) -> bool:
    """True if a NodeDef draws random numbers from a seed."""
    return "seed2" in node.attr and bool(node.attr["seed"].i or node.attr["seed2"].i)
