"""Memory and FLOPs of a step of one core, from the graph.

Parameters, slots, infeed and FLOPs are exact. Memory is an estimate, because XLA decides what to
keep, fuse or recompute; `compiler` reports the real figure.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re

import tensorflow as tf
from tensorflow.python.framework import ops

from tpu.emulator.replicated_graph import ReplicatedGraph
from tpu.findings import user_line

GRADIENTS = re.compile(r"(^|/)gradients(_\d+)?/")
# Backward operations that read no values, and forward operations whose outputs need no memory.
_SHAPE_ONLY = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")
_NOT_KEPT = ("ReadVariableOp", "Const", "Shape", "Identity", "Cast")


@dataclasses.dataclass(frozen=True)
class LargeTensor:
    """A large tensor: bytes including tile padding, dtype and shape, "file:line"."""

    num_bytes: int
    shape: str
    where: str


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Memory and FLOPs of one core and one step.

    Attributes:
      parameters: number of trainable parameters.
      parameter_bytes: size of the trainable variables.
      slot_bytes: size of all other variables: optimizer slots, moving averages, counters.
      infeed_bytes: size of the infeed.
      kept_bytes: size of the activations kept for the backward pass.
      hbm_bytes: estimated peak memory, including tile padding.
      padding: share of the memory that is tile padding.
      flops: floating-point operations.
      largest: the largest kept activations.
      largest_variable: the largest trainable variable, `where` is its name; None without any.
    """

    parameters: int
    parameter_bytes: int
    slot_bytes: int
    infeed_bytes: int
    kept_bytes: int
    hbm_bytes: int
    padding: float
    flops: int
    largest: tuple[LargeTensor, ...]
    largest_variable: LargeTensor | None = None


def measure(graph: tf.Graph, program: ReplicatedGraph) -> Sizes:
    """Measures a step of `graph_builder.build_step` with version 1 control flow."""
    trainable, others = _variables(graph, program)
    kept = _kept_activations(program)
    infeed_bytes = sum(_bytes(tensor.shape, tensor.dtype) for tensor in program.infeed)
    stored = [(variable.shape, variable.dtype.base_dtype) for variable in trainable + others]
    stored += [(tensor.shape, tensor.dtype) for tensor in kept]
    plain = sum(_bytes(shape, dtype) for shape, dtype in stored) + infeed_bytes
    tiled = sum(tiled_bytes(shape, dtype) for shape, dtype in stored) + infeed_bytes
    largest = sorted(kept, key=lambda tensor: -tiled_bytes(tensor.shape, tensor.dtype))[:5]
    # Gradients are short-lived: count the largest gradient of a variable and of an activation.
    gradients = max((_bytes(v.shape, v.dtype.base_dtype) for v in trainable), default=0)
    gradients += max((tiled_bytes(tensor.shape, tensor.dtype) for tensor in largest), default=0)
    return Sizes(
        parameters=sum(variable.shape.num_elements() for variable in trainable),
        parameter_bytes=sum(_bytes(v.shape, v.dtype.base_dtype) for v in trainable),
        slot_bytes=sum(_bytes(v.shape, v.dtype.base_dtype) for v in others),
        infeed_bytes=infeed_bytes,
        kept_bytes=sum(_bytes(tensor.shape, tensor.dtype) for tensor in kept),
        hbm_bytes=tiled + (gradients if kept else 0),
        padding=1 - plain / max(tiled, 1),
        flops=_flops(graph, program),
        largest=tuple(
            LargeTensor(
                tiled_bytes(tensor.shape, tensor.dtype),
                f"{tensor.dtype.name}{tensor.shape.as_list()}",
                user_line(tensor.op),
            )
            for tensor in largest
        ),
        largest_variable=max(map(_describe, trainable), key=lambda v: v.num_bytes, default=None),
    )


def explain_variables(sizes: Sizes, hbm_gib: float) -> str:
    """Returns why the variables of a core exceed its memory; "" if they do not.

    Args:
      sizes: of `measure`.
      hbm_gib: memory of a core in GiB; 0 if unknown.
    """
    needed = sizes.parameter_bytes + sizes.slot_bytes
    largest = sizes.largest_variable
    if not hbm_gib or not largest or needed <= hbm_gib * 2**30:
        return ""
    return (
        f"the variables do not fit: with slots they need {needed / 2**30:,.2f} GiB on each core, "
        f"which has {hbm_gib} GiB. The largest is '{largest.where}': {largest.shape} = "
        f"{largest.num_bytes / 2**30:,.2f} GiB without slots. Shard embedding tables over the "
        "cores as TPU embeddings (embedding_config_spec), or use smaller layers"
    )


def tiled_bytes(shape, dtype) -> int:
    """Returns the least memory of a tensor in tiles of 8 x 128 (16 x 128 for two-byte types).

    XLA chooses which two dimensions are tiled; this is the best choice.
    """
    rows = 8 * max(1, 4 // dtype.size)
    sizes = shape.as_list()
    if len(sizes) < 2:
        return _round_up(math.prod(sizes), 128) * dtype.size
    elements = math.prod(sizes)
    padded = (
        elements
        // max(1, sizes[i] * sizes[j])
        * _round_up(sizes[i], rows)
        * _round_up(sizes[j], 128)
        for i, j in itertools.permutations(range(len(sizes)), 2)
    )
    return min(padded) * dtype.size


def _variables(graph, program):
    """Returns the trainable and the other variables of the step."""
    keys = tf.compat.v1.GraphKeys
    known = {
        handle_name(variable): variable
        for key in (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES)
        for variable in graph.get_collection(key)
    }
    handles = map(program.on_first_core, program.external_tensors.values())
    # A dict: a replicated variable may have several handles.
    used = {
        handle.name: known[handle.name] if handle.name in known else _InNoCollection.of(handle.op)
        for handle in handles
        if handle.op.type == "VarHandleOp"
    }.values()
    names = {handle_name(variable) for variable in graph.get_collection(keys.TRAINABLE_VARIABLES)}
    trainable = [variable for variable in used if handle_name(variable) in names]
    return trainable, [variable for variable in used if handle_name(variable) not in names]


@dataclasses.dataclass
class _InNoCollection:
    """A variable without a collection, such as those of each core in Mesh TensorFlow."""

    op: tf.Operation
    shape: tf.TensorShape
    dtype: tf.DType
    handle: tf.Tensor

    @classmethod
    def of(cls, op):
        """Returns the variable of a VarHandleOp."""
        return cls(op, tf.TensorShape(op.get_attr("shape")), op.get_attr("dtype"), op.outputs[0])


def _describe(variable):
    shape, dtype = variable.shape, variable.dtype.base_dtype
    return LargeTensor(_bytes(shape, dtype), f"{dtype.name}{shape.as_list()}", variable.op.name)


def handle_name(variable) -> str | None:
    """Returns the name of a variable's handle; None for a reference variable, as on the host."""
    handle = getattr(variable, "handle", None)
    return None if handle is None else handle.name


def _kept_activations(program):
    """Returns the tensors of the forward pass that the backward pass reads."""
    kept = {}
    for op in program.operations.values():
        is_backward = op.name in program.computed and GRADIENTS.search(op.name)
        if is_backward and op.type not in _SHAPE_ONLY:
            for tensor in op.inputs:
                is_forward = not GRADIENTS.search(tensor.op.name)
                is_inside = tensor.op.name in program.operations and tensor.op.type not in _NOT_KEPT
                if is_forward and is_inside and tensor.shape.is_fully_defined():
                    tensor = _kept_instead(tensor)
                    if tensor.op.name in program.operations and not _is_recomputed(tensor):
                        kept[tensor.name] = tensor
    return [tensor for tensor in kept.values() if tensor.dtype.is_floating]


def _kept_instead(tensor):
    """Returns the tensor that this one shares memory with, or that XLA computes it again from."""
    while (source := _source(tensor.op)) is not None:
        tensor = source
    return tensor


def _source(op):
    """Returns the input of an operation whose result is not kept, or None."""
    if op.type in ("Reshape", "Squeeze", "ExpandDims"):
        return op.inputs[0]
    if op.type == "Cast":
        source = op.inputs[0]
        widens = source.dtype.is_floating and source.dtype.size < op.outputs[0].dtype.size
        return source if widens else None
    if op.type in ("Sub", "AddV2", "Mul"):  # with a vector, as of batch norm
        source, other = op.inputs
        is_cheap = source.shape == op.outputs[0].shape and other.shape.rank in (0, 1)
        return source if is_cheap else None
    if op.type == "SelectV2":
        condition, source, other = op.inputs
        return source if condition.op.type == "Const" and other.shape.rank == 0 else None
    return None


def _is_recomputed(tensor):
    """True for activations after batch norm, which XLA computes again in the backward pass."""
    return tensor.op.type in ("Relu", "Relu6") and tensor.op.inputs[0].op.type == "FusedBatchNormV3"


def _flops(graph, program):
    """Adds up the FLOPs of TensorFlow's profiler, multiplied by the iterations of loops."""
    total = 0
    for op in program.operations.values():
        try:
            flops = ops.get_stats_for_node_def(graph, op.node_def, "flops").value
        except ValueError:  # an unknown shape
            continue
        total += (flops or 0) * _num_executions(op)
    return int(total)


def _num_executions(op):
    times, loop = 1, op._get_control_flow_context()
    while loop is not None:
        iterations = getattr(loop, "maximum_iterations", None)
        times *= 1 if iterations is None else int(tf.get_static_value(iterations) or 1)
        loop = loop.outer_context
    return times


def _bytes(shape, dtype):
    return (shape.num_elements() or 0) * dtype.size


def _round_up(number, multiple):
    return -(-number // multiple) * multiple
