"""Memory and FLOPs of a step of one core, from the graph.

Parameters, slots, infeed and FLOPs are exact. Memory is an estimate, because XLA decides what to
keep, fuse or recompute; `compiler` reports the real figure.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import NamedTuple

import tensorflow as tf

from tpu.check.executions import Executions
from tpu.check.flops import count_flops
from tpu.graph import op_types
from tpu.graph.flat_program import place_of
from tpu.graph.flattener import flatten
from tpu.graph.replicated_graph import ReplicatedGraph
from tpu.graph.variables import handle_name

# Forward operations whose outputs need no memory.
_NOT_KEPT = ("ReadVariableOp", "Const", "Shape", "Identity", "Cast")
# Operations that keep the values of each iteration for the gradient of a loop.
_ACCUMULATORS = ("StackPushV2", "TensorListPushBack")


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
      flops: floating-point operations, see `not_counted`.
      largest: the largest kept activations.
      largest_variable: the largest trainable variable, `where` is its name; None without any.
      not_counted: what the FLOPs and the activations do not include.
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
    not_counted: tuple[str, ...] = ()


def measure(graph: tf.Graph, program: ReplicatedGraph) -> Sizes:
    """Measures a step of `graph_builder.build_once`."""
    trainable, others = _variables(graph, program)
    flat = flatten(program)
    executions = Executions(flat)
    copies = _kept_activations(flat, executions)
    flops, not_counted = count_flops(flat, executions)
    infeed_bytes = sum(_bytes(tensor) for tensor in program.infeed)
    stored = [*((variable, 1) for variable in trainable + others), *copies]
    plain = sum(_bytes(tensor) * count for tensor, count in stored) + infeed_bytes
    tiled = sum(tiled_bytes(tensor) * count for tensor, count in stored) + infeed_bytes
    largest = sorted(copies, key=lambda pair: -tiled_bytes(pair[0]) * pair[1])[:5]
    # Gradients are short-lived: count the largest gradient of a variable and of an activation.
    gradients = max(map(_bytes, trainable), default=0)
    gradients += max((tiled_bytes(tensor) for tensor, _ in copies), default=0)
    return Sizes(
        parameters=sum(variable.shape.num_elements() for variable in trainable),
        parameter_bytes=sum(map(_bytes, trainable)),
        slot_bytes=sum(map(_bytes, others)),
        infeed_bytes=infeed_bytes,
        kept_bytes=sum(_bytes(tensor) * count for tensor, count in copies),
        hbm_bytes=tiled + (gradients if copies else 0),
        padding=1 - plain / max(tiled, 1),
        flops=flops,
        largest=tuple(
            LargeTensor(
                tiled_bytes(tensor) * count,
                f"{f'{count} x ' if count > 1 else ''}{tensor.dtype.name}{tensor.shape.as_list()}",
                place_of(tensor.op),
            )
            for tensor, count in largest
        ),
        largest_variable=max(map(_describe, trainable), key=lambda v: v.num_bytes, default=None),
        not_counted=not_counted,
    )


def explain_variables(sizes: Sizes, hbm_gib: float) -> str:
    """Returns why the variables of a core exceed its memory, in GiB; "" if not, or if it is 0."""
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


def tiled_bytes(tensor) -> int:
    """Returns the least memory of a tensor, with the padding of its tiles.

    A tile has 128 columns, and 2, 4 or 8 rows: the fewest that contain a small dimension, but at
    least as many as a register packs, 4 of two bytes and 8 of one byte. XLA chooses which two
    dimensions are tiled; this is the best choice. Equal to the layouts of libtpu 0.0.34 for v3.
    """
    sizes, dtype = tensor.shape.as_list(), tensor.dtype
    parts = max(1, dtype.size // 4)  # 64 bits are two arrays of 32
    width = dtype.size // parts
    packed = 4 // width
    if len(sizes) < 2:
        elements = math.prod(sizes)
        tile = next(t for t in (256, 512, 1024) if t >= min(elements, 1024) and t >= 256 * packed)
        return _round_up(elements, tile) * width * parts
    elements = math.prod(sizes)
    rows = [round_up_rows(size, dtype) for size in sizes]
    padded = (
        elements // max(1, sizes[i] * sizes[j]) * rows[i] * _round_up(sizes[j], 128)
        for i, j in itertools.permutations(range(len(sizes)), 2)
    )
    return min(padded) * width * parts


def round_up_rows(size: int, dtype) -> int:
    """Returns a size of the second dimension of tiles, with padding."""
    packed = 4 // min(4, dtype.size)
    rows = next(rows for rows in (2, 4, 8) if rows >= max(min(size, 8), 2 * packed))
    return _round_up(size, rows)


class _Variable(NamedTuple):
    """A variable of the step."""

    name: str
    shape: tf.TensorShape
    dtype: tf.DType


def _variables(graph, program):
    """Returns the trainable and the other variables of the step."""
    collection = graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    names = {handle_name(variable) for variable in collection}
    handles = map(program.on_first_core, program.external_tensors.values())
    # A dict: a replicated variable may have several handles.
    used = {handle.name: handle.op for handle in handles if handle.op.type == "VarHandleOp"}
    found = {
        name: _Variable(op.name, tf.TensorShape(op.get_attr("shape")), op.get_attr("dtype"))
        for name, op in used.items()
    }
    trainable = [variable for name, variable in found.items() if name in names]
    return trainable, [variable for name, variable in found.items() if name not in names]


def _describe(variable):
    description = f"{variable.dtype.name}{variable.shape.as_list()}"
    return LargeTensor(_bytes(variable), description, variable.name)


def _kept_activations(program, executions):
    """Returns [(tensor of the forward pass that the backward pass reads, number of copies)].

    A loop keeps one copy for each iteration.
    """
    kept = {}
    for op in program.operations.values():
        is_reader = op.is_gradient or op.type in _ACCUMULATORS
        if is_reader and op.name in program.computed and op.type not in op_types.SHAPES:
            for tensor in op.inputs:
                is_inside = tensor.op.name in program.operations
                is_forward = is_inside and not tensor.op.is_gradient
                # An accumulator copies even what the loop only passes on.
                is_forward &= tensor.op.type not in _NOT_KEPT or op.type in _ACCUMULATORS
                if is_forward and tensor.shape.is_fully_defined():
                    # What it shares memory with, or what XLA computes it again from. A shape that
                    # only XLA knows, as in a loop with shape_invariants, ends the search.
                    while (source := _source(tensor.op)) is not None:
                        if not source.shape.is_fully_defined():
                            break
                        tensor = source
                    # XLA computes activations after batch norm again in the backward pass.
                    is_recomputed = (
                        tensor.op.type in ("Relu", "Relu6")
                        and tensor.op.inputs[0].op.type == "FusedBatchNormV3"
                    )
                    if tensor.op.name in program.operations and not is_recomputed:
                        kept[tensor.name] = tensor
    return [(t, executions.times(t.op)) for t in kept.values() if t.dtype.is_floating]


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


def _bytes(tensor):
    return (tensor.shape.num_elements() or 0) * tensor.dtype.size


def _round_up(number, multiple):
    return -(-number // multiple) * multiple
