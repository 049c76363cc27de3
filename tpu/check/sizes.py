"""Bytes and operations of a step of one core, from the graph alone.

Parameters, slots, infeed and FLOPs are exact. The memory is an estimate: what XLA keeps, fuses or
computes again is its own business. `compiler` knows better.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re

import tensorflow as tf
from tensorflow.python.framework import ops

from tpu.emulator.replicated_graph import Cluster
from tpu.findings import where

GRADIENTS = re.compile(r"(^|/)gradients(_\d+)?/")
# Of the backward pass: asks for no numbers. Of the forward pass: read anew, or free.
_SHAPE_ONLY = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")
_NOT_KEPT = ("ReadVariableOp", "Const", "Shape", "Identity", "Cast")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A large tensor: bytes as stored in tiles, and who made it."""

    num_bytes: int
    shape: str
    where: str


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of one core and one step.

    Attributes:
      parameters: number of trainable numbers.
      parameter_bytes: of trainable variables.
      slot_bytes: of all other variables: the optimizer's, moving averages, counters.
      infeed_bytes: that come in.
      kept_bytes: of what the forward pass keeps for the backward pass.
      hbm_bytes: about what is in memory at once, in tiles.
      padding: share of what is stored that only fills tiles.
      flops: floating-point operations of a step.
      largest: the largest kept tensors.
    """

    parameters: int
    parameter_bytes: int
    slot_bytes: int
    infeed_bytes: int
    kept_bytes: int
    hbm_bytes: int
    padding: float
    flops: int
    largest: tuple[Tensor, ...]


def measure(graph: tf.Graph, cluster: Cluster) -> Sizes:
    """Measures the step of `program.one_step`, built with version 1 control flow."""
    trainable, others = _variables(graph, cluster)
    kept = _kept(cluster)
    arriving = [_bytes(tensor.shape, tensor.dtype) for tensor in cluster.infeed]
    stored = [(variable.shape, variable.dtype.base_dtype) for variable in trainable + others]
    stored += [(tensor.shape, tensor.dtype) for tensor in kept]
    plain = sum(_bytes(shape, dtype) for shape, dtype in stored) + sum(arriving)
    tiled = sum(tiled_bytes(shape, dtype) for shape, dtype in stored) + sum(arriving)
    largest = sorted(kept, key=lambda tensor: -tiled_bytes(tensor.shape, tensor.dtype))[:5]
    # Gradients come and go; the largest of either kind are there at once.
    gradients = max((_bytes(v.shape, v.dtype.base_dtype) for v in trainable), default=0)
    gradients += max((tiled_bytes(tensor.shape, tensor.dtype) for tensor in largest), default=0)
    return Sizes(
        parameters=sum(variable.shape.num_elements() for variable in trainable),
        parameter_bytes=sum(_bytes(v.shape, v.dtype.base_dtype) for v in trainable),
        slot_bytes=sum(_bytes(v.shape, v.dtype.base_dtype) for v in others),
        infeed_bytes=sum(arriving),
        kept_bytes=sum(_bytes(tensor.shape, tensor.dtype) for tensor in kept),
        hbm_bytes=tiled + (gradients if kept else 0),
        padding=1 - plain / max(tiled, 1),
        flops=_flops(graph, cluster),
        largest=tuple(
            Tensor(
                tiled_bytes(tensor.shape, tensor.dtype),
                f"{tensor.dtype.name}{tensor.shape.as_list()}",
                where(tensor.op),
            )
            for tensor in largest
        ),
    )


def tiled_bytes(shape, dtype) -> int:
    """Returns the least that a tensor takes in tiles of 8 x 128 (16 x 128 for two-byte types).

    XLA chooses which two dimensions lie in the tile; this is the best choice.
    """
    rows = 8 * max(1, 4 // dtype.size)
    sizes = shape.as_list()
    if len(sizes) < 2:
        return _up(math.prod(sizes), 128) * dtype.size
    elements = math.prod(sizes)
    padded = (
        elements // max(1, sizes[i] * sizes[j]) * _up(sizes[i], rows) * _up(sizes[j], 128)
        for i, j in itertools.permutations(range(len(sizes)), 2)
    )
    return min(padded) * dtype.size


def _variables(graph, cluster):
    """Returns the trainable and the other variables that the step uses."""
    keys = tf.compat.v1.GraphKeys
    known = {
        variable.handle.name: variable
        for key in (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES)
        for variable in graph.get_collection(key)
    }
    used = [known[name] for name in cluster.external_tensors if name in known]
    names = {variable.handle.name for variable in graph.get_collection(keys.TRAINABLE_VARIABLES)}
    trainable = [variable for variable in used if variable.handle.name in names]
    return trainable, [variable for variable in used if variable.handle.name not in names]


def _kept(cluster):
    """Returns the tensors of the forward pass that the backward pass reads."""
    kept = {}
    for op in cluster.operations.values():
        runs_backward = op.name in cluster.computed and GRADIENTS.search(op.name)
        if runs_backward and op.type not in _SHAPE_ONLY:
            for tensor in op.inputs:
                made_forward = not GRADIENTS.search(tensor.op.name)
                inside = tensor.op.name in cluster.operations and tensor.op.type not in _NOT_KEPT
                if made_forward and inside and tensor.shape.is_fully_defined():
                    tensor = _stored(tensor)
                    if tensor.op.name in cluster.operations and not _computed_again(tensor):
                        kept[tensor.name] = tensor
    return [tensor for tensor in kept.values() if tensor.dtype.is_floating]


def _stored(tensor):
    """Returns the tensor that this one is another view of."""
    while tensor.op.type in ("Reshape", "Squeeze", "ExpandDims"):
        tensor = tensor.op.inputs[0]
    return tensor


def _computed_again(tensor):
    """Whether XLA rather computes it twice: an activation of what batch norm gives."""
    return tensor.op.type in ("Relu", "Relu6") and tensor.op.inputs[0].op.type == "FusedBatchNormV3"


def _flops(graph, cluster):
    """Adds up what TensorFlow's profiler knows of each operation, as often as loops repeat it."""
    total = 0
    for op in cluster.operations.values():
        try:
            flops = ops.get_stats_for_node_def(graph, op.node_def, "flops").value
        except ValueError:  # a shape that is not known
            continue
        total += (flops or 0) * _repeats(op)
    return int(total)


def _repeats(op):
    times, loop = 1, op._get_control_flow_context()
    while loop is not None:
        iterations = getattr(loop, "maximum_iterations", None)
        times *= 1 if iterations is None else int(tf.get_static_value(iterations) or 1)
        loop = loop.outer_context
    return times


def _bytes(shape, dtype):
    return (shape.num_elements() or 0) * dtype.size


def _up(number, multiple):
    return -(-number // multiple) * multiple
