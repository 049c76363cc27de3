"""Memory and FLOPs of a step of one core, from the graph.

Parameters, slots, infeed and FLOPs are exact. Memory is an estimate, because XLA decides what to
keep, fuse or recompute; `compiler` reports the real figure.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import tensorflow as tf
from tensorflow.python.framework import ops

from tpu.check.executions import Executions
from tpu.check.flat_program import flatten, place_of
from tpu.emulator.replicated_graph import ReplicatedGraph

# Backward operations that read no values, and forward operations whose outputs need no memory.
_SHAPE_ONLY = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")
_NOT_KEPT = ("ReadVariableOp", "Const", "Shape", "Identity", "Cast")
# Operations that keep the values of each iteration for the gradient of a loop.
_ACCUMULATORS = ("StackPushV2", "TensorListPushBack")
_CONVOLUTION_GRADIENTS = (
    *("Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"),
    *("DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter"),
)
# Most of the FLOPs of a model.
_COUNTED = (
    *("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "Conv2D", "Conv3D"),
    *("Conv2DBackpropInput", "Conv2DBackpropFilter", "DepthwiseConv2dNative"),
    *_CONVOLUTION_GRADIENTS,
)
# Operations with many FLOPs that nothing counts.
_OPAQUE = (
    *("Cholesky", "Qr", "Svd", "SelfAdjointEigV2", "MatrixInverse", "MatrixSolve", "FFT", "FFT2D"),
    *("MatrixTriangularSolve", "RFFT", "IRFFT", "Sort", "TopKV2", "SymbolicGradient"),
    *("XlaCustomCall", "XlaCustomCallV2", "XlaConvV2", "XlaDotV2", "XlaEinsum", "XlaSort"),
)


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
    """Measures a step of `graph_builder.build_step`."""
    trainable, others = _variables(graph, program)
    flat = flatten(program)
    executions = Executions(flat)
    copies = _kept_activations(flat, executions)
    kept = [tensor for tensor, _ in copies]
    flops, not_counted = _flops(flat, executions)
    infeed_bytes = sum(_bytes(tensor.shape, tensor.dtype) for tensor in program.infeed)
    stored = [(variable.shape, variable.dtype.base_dtype, 1) for variable in trainable + others]
    stored += [(tensor.shape, tensor.dtype, count) for tensor, count in copies]
    plain = sum(_bytes(shape, dtype) * count for shape, dtype, count in stored) + infeed_bytes
    tiled = sum(tiled_bytes(shape, dtype) * count for shape, dtype, count in stored) + infeed_bytes
    largest = sorted(copies, key=lambda pair: -tiled_bytes(pair[0].shape, pair[0].dtype) * pair[1])
    largest = largest[:5]
    # Gradients are short-lived: count the largest gradient of a variable and of an activation.
    gradients = max((_bytes(v.shape, v.dtype.base_dtype) for v in trainable), default=0)
    gradients += max((tiled_bytes(tensor.shape, tensor.dtype) for tensor in kept), default=0)
    return Sizes(
        parameters=sum(variable.shape.num_elements() for variable in trainable),
        parameter_bytes=sum(_bytes(v.shape, v.dtype.base_dtype) for v in trainable),
        slot_bytes=sum(_bytes(v.shape, v.dtype.base_dtype) for v in others),
        infeed_bytes=infeed_bytes,
        kept_bytes=sum(_bytes(tensor.shape, tensor.dtype) * count for tensor, count in copies),
        hbm_bytes=tiled + (gradients if kept else 0),
        padding=1 - plain / max(tiled, 1),
        flops=flops,
        largest=tuple(
            LargeTensor(
                tiled_bytes(tensor.shape, tensor.dtype) * count,
                f"{f'{count} x ' if count > 1 else ''}{tensor.dtype.name}{tensor.shape.as_list()}",
                place_of(tensor.op),
            )
            for tensor, count in largest
        ),
        largest_variable=max(map(_describe, trainable), key=lambda v: v.num_bytes, default=None),
        not_counted=not_counted,
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
    """Returns the least memory of a tensor, with the padding of its tiles.

    A tile has 128 columns, and 2, 4 or 8 rows: the fewest that contain a small dimension, but at
    least as many as a register packs, 4 of two bytes and 8 of one byte. XLA chooses which two
    dimensions are tiled; this is the best choice. Equal to the layouts of libtpu 0.0.34 for v3.
    """
    sizes, parts = shape.as_list(), max(1, dtype.size // 4)  # 64 bits are two arrays of 32
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


def _kept_activations(program, executions):
    """Returns [(tensor of the forward pass that the backward pass reads, number of copies)].

    A loop keeps one copy for each iteration.
    """
    kept = {}
    for op in program.operations.values():
        is_reader = op.is_gradient or op.type in _ACCUMULATORS
        if is_reader and op.name in program.computed and op.type not in _SHAPE_ONLY:
            for tensor in op.inputs:
                is_inside = tensor.op.name in program.operations
                is_forward = is_inside and not tensor.op.is_gradient
                # An accumulator copies even what the loop only passes on.
                is_forward &= tensor.op.type not in _NOT_KEPT or op.type in _ACCUMULATORS
                if is_forward and tensor.shape.is_fully_defined():
                    tensor = _kept_instead(tensor)
                    if tensor.op.name in program.operations and not _is_recomputed(tensor):
                        kept[tensor.name] = tensor
    return [(t, executions.times(t.op)) for t in kept.values() if t.dtype.is_floating]


def _kept_instead(tensor):
    """Returns the tensor that this one shares memory with, or that XLA computes it again from.

    One whose shape only XLA knows, as in a loop with shape_invariants, is not followed further.
    """
    while (source := _source(tensor.op)) is not None and source.shape.is_fully_defined():
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


def _flops(program, executions):
    """Returns the FLOPs of a step, and a list of what they do not include.

    FLOPs are those of TensorFlow's profiler, multiplied by the iterations of loops; of a
    conditional those of the costlier branch.
    """
    costs, unknown = {}, []
    for op in program.operations.values():
        if op.is_copy and op.name in program.live:
            try:
                flops = _flops_of(op)
            except (ValueError, TypeError):  # an unknown shape
                flops = None
            if flops is None and op.type in _COUNTED:
                unknown.append(op)
            costs[op] = flops or 0
    not_counted = [
        f"FLOPs and activations of all but one iteration of the loop at {place}"
        for place in dict.fromkeys(executions.unknown_loops)
    ]
    if unknown:
        count = f"{len(unknown)} operations" if len(unknown) > 1 else f"a {unknown[0].type}"
        not_counted.append(f"FLOPs of {count} of unknown shape")
    custom = sorted({op.type for op in program.operations.values() if op.type in _OPAQUE})
    if custom:
        not_counted.append(f"FLOPs of {', '.join(custom)}")
    if executions.has_conditionals:
        not_counted.append("FLOPs of the cheaper branch of each conditional")
    return int(executions.total(costs)), tuple(not_counted)


def _flops_of(op):
    """Returns the FLOPs of an execution of an operation; None or 0 if they are not known."""
    if op.type in ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"):
        first, result = op.inputs[0].shape.as_list(), op.outputs[0].shape.as_list()
        is_transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
        return 2 * math.prod(result) * first[-2 if is_transposed else -1]
    if op.type == "Einsum":
        labels = op.get_attr("equation").decode().partition("->")[0].split(",")
        shapes = [tensor.shape.as_list() for tensor in op.inputs]
        sizes = {}
        for names, shape in zip(labels, shapes):
            named, dots, rest = names.partition("...")
            sizes.update(zip(named, shape))
            sizes.update(zip(reversed(rest), reversed(shape)))
            middle = shape[len(named) : len(shape) - len(rest)] if dots else []
            sizes.update((("...", i), size) for i, size in enumerate(reversed(middle)) if size > 1)
        return (2 if len(shapes) > 1 else 1) * math.prod(sizes.values())
    if op.type in _CONVOLUTION_GRADIENTS:
        # As many products as the convolution: for each output, the elements of a filter.
        kernel = op.outputs[0] if "Filter" in op.type else op.inputs[1]
        gradient = op.inputs[2].shape.as_list()
        per_output = math.prod(kernel.shape.as_list()[:-1])
        if op.type.startswith("Depthwise"):
            per_output = math.prod(kernel.shape.as_list()[:2])
        return 2 * math.prod(gradient) * per_output
    return ops.get_stats_for_node_def(op.graph, op.node_def, "flops").value


def _bytes(shape, dtype):
    return (shape.num_elements() or 0) * dtype.size


def _round_up(number, multiple):
    return -(-number // multiple) * multiple
