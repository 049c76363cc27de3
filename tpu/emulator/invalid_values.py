"""Values that a kernel for a CPU refuses or computes otherwise, and that a TPU accepts.

TensorFlow's kernels for a CPU raise an error for an index out of range, a division by 0 or a failed
assertion. A TPU has no such errors: XLA clamps, drops or computes something. Each `Rule` finds
these values, so that `xla_values` can let XLA compute the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tpu.emulator.graph_analysis import root

raw = tf.raw_ops


@dataclasses.dataclass(frozen=True)
class Rule:
    """How to handle invalid inputs of an operation.

    Attributes:
      find: function from a `Call` to (mask, values, limit): a bool tensor, true where an input is
        invalid; the values to show, of the same shape; and the number to show as `{limit}`.
      message: what the operation does, and what a TPU does; with `{value}` and `{limit}`. "" if the
        values are valid, and only the kernel for a CPU refuses them.
      is_safe: function from a tf.Operation to True if its inputs are known to be valid.
      repair: function from a `Call` to the results on a TPU; None to let XLA compute them.
    """

    find: Callable
    message: str
    is_safe: Callable = lambda op: False
    repair: Callable | None = None


def static_value(tensor):
    """Returns the value of a constant, also in a loop; None if unknown."""
    return tf.get_static_value(root(tensor))


def _outside(values, limit, low=0):
    limit = _cast(limit, values.dtype)
    if low == 0 and values.dtype in _UNSIGNED:  # one comparison is enough
        unsigned = _UNSIGNED[values.dtype]
        return tf.bitcast(values, unsigned) >= _cast(limit, unsigned), values, limit
    return (values < low) | (values >= limit), values, limit


_UNSIGNED = {tf.int32: tf.uint32, tf.int64: tf.uint64}


def _cast(value, dtype):
    known = tf.get_static_value(value)
    return tf.cast(value, dtype) if known is None else tf.constant(known, dtype)


def _variable_shape(call, dtype=tf.int32):
    if call.variable_shape is not None:
        return tf.constant(call.variable_shape, dtype)
    return raw.VariableShape(input=call.inputs[0], out_type=dtype)


def _dimension(tensor, axis, dtype=tf.int64):
    known = tf.get_static_value(axis)
    size = None if known is None or tensor.shape.rank is None else tensor.shape[int(known)]
    return tf.shape(tensor, dtype)[axis] if size is None else tf.constant(size, dtype)


def _clamp(values, low, high):
    """Returns integers within bounds that are tensors of any integer type."""
    low, high = tf.cast(low, values.dtype), tf.cast(high, values.dtype)
    return tf.maximum(tf.minimum(values, high), low)


# Indices that are read. The batch dimensions of a gather do not change the axis.


def _gather(call):
    params, indices = call.inputs[:2]
    axis = call.inputs[2] if len(call.inputs) > 2 else 0
    return _outside(indices, _dimension(params, axis))


def _gathers_within(op):
    indices = static_value(op.inputs[1])
    if indices is None or indices.size == 0:
        return indices is not None
    axis = static_value(op.inputs[2]) if len(op.inputs) > 2 else 0
    size = (
        None if axis is None or op.inputs[0].shape.rank is None else op.inputs[0].shape[int(axis)]
    )
    return size is not None and indices.min() >= 0 and indices.max() < size


def _resource_gather(call):
    axis = call.attribute("batch_dims")
    if call.variable_shape is not None:
        return _outside(call.inputs[1], call.variable_shape[axis])
    return _outside(call.inputs[1], _variable_shape(call, tf.int64)[axis])


def _index_vectors(indices, shape):
    """Finds index vectors `[..., k]` that are not in a tensor of this shape."""
    limits = tf.broadcast_to(
        tf.cast(shape, indices.dtype)[: tf.shape(indices)[-1]], tf.shape(indices)
    )
    mask = (indices < 0) | (indices >= limits)
    return mask, indices, limits


def _gather_nd(call):
    return _index_vectors(call.inputs[1], tf.shape(call.inputs[0]))


def _resource_gather_nd(call):
    return _index_vectors(call.inputs[1], _variable_shape(call))


def _gather_nd_of_value(call):
    value = raw.ReadVariableOp(resource=call.inputs[0], dtype=call.attribute("dtype"))
    compiled = tf.function(
        lambda value, indices: raw.GatherNd(params=value, indices=indices),
        autograph=False,
        jit_compile=True,
    )
    return [compiled(value, call.inputs[1])]


def _list_item(call):
    return _outside(call.inputs[1], raw.TensorListLength(input_handle=call.inputs[0]))


def _nearest_list_item(call):
    handle, index, *others = call.inputs
    size = raw.TensorListLength(input_handle=handle)
    return call.run(handle, _clamp(index, 0, size - 1), *others)


def _array_item(call):
    size = raw.TensorArraySizeV3(handle=call.inputs[0], flow_in=call.inputs[-1])
    return _outside(call.inputs[1], size)


def _nearest_array_item(call):
    handle, index, *others = call.inputs
    size = raw.TensorArraySizeV3(handle=handle, flow_in=call.inputs[-1])
    return call.run(handle, _clamp(index, 0, size - 1), *others)


def _writes_no_gradient(op):
    # A gradient array adds values of the same index; others accept one value per index.
    return root(op.inputs[0]).op.type == "TensorArrayV3"


def _slice(call):
    last = _last_begin(call)
    begin = call.inputs[1]
    return (begin < 0) | (begin > last), begin, last + 1


def _last_begin(call):
    value, begin, size = call.inputs
    shape = tf.shape(value, begin.dtype)
    return shape - tf.where(size < 0, tf.maximum(shape - begin, 0), size)


def _nearest_slice(call):
    value, begin, size = call.inputs
    return call.run(value, _clamp(begin, 0, _last_begin(call)), size)


def _has_constant_begin(op):
    return static_value(op.inputs[1]) is not None


def _single_rows(call):
    """Finds the indices of `x[i]` that are not in [-size, size)."""
    begin = call.inputs[1]
    is_index, sizes = _sliced_dimensions(call)
    return is_index & ((begin < -sizes) | (begin >= sizes)), begin, sizes


def _nearest_rows(call):
    begin = call.inputs[1]
    is_index, sizes = _sliced_dimensions(call)
    inputs = list(call.inputs)
    inputs[1] = tf.where(is_index, _clamp(begin, -sizes, sizes - 1), begin)
    # A slice of one element: the end has no meaning, but must not be before the beginning.
    inputs[2] = tf.where(is_index, inputs[1] + 1, inputs[2])
    return call.run(*inputs)


def _sliced_dimensions(call):
    """Returns, per entry of `begin`, whether it is an index, and the size of its dimension."""
    begin = call.inputs[1]
    is_grad = call.node.op == "StridedSliceGrad"
    shape = call.inputs[0] if is_grad else tf.shape(call.inputs[0], begin.dtype)
    position = tf.range(tf.size(begin))
    masks = {
        name: tf.cast(tf.bitwise.right_shift(call.attribute(f"{name}_mask"), position) & 1, tf.bool)
        for name in ("shrink_axis", "new_axis", "ellipsis")
    }
    num_new = tf.cast(masks["new_axis"], tf.int32)
    before = tf.cumsum(num_new, exclusive=True)
    is_after = tf.cumsum(tf.cast(masks["ellipsis"], tf.int32), exclusive=True) > 0
    # The ellipsis stands for the dimensions that no other entry names.
    named = tf.size(begin) - tf.reduce_sum(num_new) - 1
    dimension = position - before + tf.where(is_after, tf.size(shape) - named - 1, 0)
    is_index = masks["shrink_axis"] & ~masks["new_axis"] & ~masks["ellipsis"]
    dimension = tf.where(is_index, dimension, 0)
    return is_index, tf.gather(tf.concat([shape, [1]], 0), dimension)


def _has_no_index(op):
    return not op.get_attr("shrink_axis_mask") or static_value(op.inputs[1]) is not None


# Indices that are written.


def _scatter_nd(call):
    return _index_vectors(call.inputs[0], call.inputs[2])


def _tensor_scatter(call):
    return _index_vectors(call.inputs[1], tf.shape(call.inputs[0]))


def _resource_scatter(call):
    return _outside(call.inputs[1], _variable_shape(call, tf.int64)[0])


def _segments(call):
    ids, limit = call.inputs[1], _cast(call.inputs[2], call.inputs[1].dtype)
    return ids >= limit, ids, limit


def _negative(call):
    values = call.inputs[0]
    return values < 0, values, 0


def _sparse_indices(call):
    indices, shape = call.inputs[:2]
    sizes = tf.broadcast_dynamic_shape(tf.shape(indices), tf.shape(shape))  # a scalar is one row
    indices = tf.broadcast_to(indices, sizes)
    limits = tf.broadcast_to(tf.cast(shape, indices.dtype), sizes)
    return (indices < 0) | (indices >= limits), indices, limits


# Other values.


def _labels(call):
    logits, labels = call.inputs
    return _outside(labels, _dimension(logits, -1))


def _zero(call):
    divisor = call.inputs[1]
    return tf.equal(divisor, 0), divisor, 0


def _is_float_or_divides_by_constant(op):
    divisor = root(op.inputs[1])
    if not op.inputs[0].dtype.is_integer:
        return True
    if divisor.op.type == "Maximum":  # how the gradient of a mean avoids 0
        return any(
            (static_value(tensor) or 0) >= 1
            for tensor in divisor.op.inputs
            if not tensor.shape.rank
        )
    value = static_value(divisor)
    return value is not None and bool(np.all(value != 0))


def _negative_power(call):
    power = call.inputs[1]
    return power < 0, power, 0


def _is_float_or_constant_power(op):
    power = static_value(op.inputs[1])
    return not op.inputs[0].dtype.is_integer or (power is not None and bool(np.all(power >= 0)))


def _unrepresentable(call):
    """Finds floats that an integer type cannot represent."""
    value, target = call.inputs[0], tf.as_dtype(call.attribute("DstT"))
    value = tf.cast(value, tf.float32) if value.dtype.size < 4 else value
    low, high = float(target.min), 2.0 * (target.max // 2 + 1)
    whole = tf.where(tf.abs(value) < 1, tf.zeros_like(value), value)  # rounds towards 0
    if target.size < 4:
        whole = tf.where(whole < 0, tf.math.ceil(whole), tf.math.floor(whole))
    valid = (whole >= low) & (whole < high)
    return ~valid, value, high


def _casts_no_float(op):
    source, target = op.inputs[0].dtype, op.outputs[0].dtype
    return not (source.is_floating and target.is_integer)


def _shifts(call):
    value, shift = call.inputs
    shift = tf.broadcast_to(shift, tf.broadcast_dynamic_shape(tf.shape(value), tf.shape(shift)))
    return _outside(shift, value.dtype.size * 8)


def _shifts_by_constant(op):
    shift = static_value(op.inputs[1])
    bits = op.inputs[0].dtype.size * 8
    return shift is not None and bool(np.all((shift >= 0) & (shift < bits)))


def _lengths(call):
    value, lengths = call.inputs
    size = tf.cast(_dimension(value, call.attribute("seq_dim")), lengths.dtype)
    return (lengths < 0) | (lengths > size), lengths, size


def _no_permutation(call):
    values = call.inputs[0]
    mask, _, limit = _outside(values, tf.size(values))
    positions = tf.range(tf.size(values), dtype=values.dtype)
    is_missing = ~tf.reduce_any(tf.equal(values[:, tf.newaxis], positions), 0)
    return mask | is_missing, values, limit


def _false(call):
    condition = call.inputs[0]
    return ~condition, condition, 0


def _nothing(call):
    return [tf.no_op()]


def _not_finite(call):
    value = call.inputs[0]
    return ~tf.math.is_finite(value), value, 0


def _first_input(call):
    return [tf.identity(call.inputs[0])]


def _singular(call):
    determinant = tf.linalg.det(call.inputs[0])
    return ~tf.math.is_finite(determinant) | tf.equal(determinant, 0), determinant, 0


def _zero_on_diagonal(call):
    diagonal = tf.linalg.diag_part(call.inputs[0])
    return tf.equal(diagonal, 0), diagonal, 0


def _reversed_range(call):
    low, high = call.inputs[1:3]
    return low > high, low, high


def _has_no_range(op):
    return not op.get_attr("range_given")


def _grouped(shape_of_input, kernel, channels_of_kernel=-2):
    """Finds a convolution with groups, of which a CPU computes no gradients."""

    def find(call):
        channels = shape_of_input(call)[-1]
        of_kernel = kernel(call)[channels_of_kernel]
        channels, of_kernel = (tf.cast(size, tf.int64) for size in (channels, of_kernel))
        return tf.not_equal(channels, of_kernel), channels, of_kernel

    return find


def _size(index):
    return lambda call: call.inputs[index]


def _shape(index):
    return lambda call: tf.shape(call.inputs[index])


def _is_not_grouped(op):
    """True if the static shapes show that a convolution has one group."""
    sizes = []
    for index, dimension in ((0, -1), (1, -2)):
        tensor = op.inputs[index]
        is_size = op.type.endswith(_SIZES[index]) if "Backprop" in op.type else False
        shape = static_value(tensor) if is_size else tensor.shape
        if shape is None or getattr(shape, "rank", 1) is None:
            return False
        sizes.append(shape[dimension])
    return None not in sizes and int(sizes[0]) == int(sizes[1])


_SIZES = {0: ("BackpropInput", "BackpropInputV2"), 1: ("BackpropFilter", "BackpropFilterV2")}

_OF_KERNEL = _grouped(_shape(0), _shape(1))
_OF_INPUT_GRADIENT = _grouped(_size(0), _shape(1))
_OF_FILTER_GRADIENT = _grouped(_shape(0), _size(1))

_READS = "reads index {value}, which is not in [0, {limit}). A TPU reads the nearest valid index"
_WRITES = "writes index {value}, which is not in [0, {limit}). A TPU ignores it"
_ITEM = "has index {value}, which is not in [0, {limit}). A TPU uses the nearest valid index"
_DIVIDES = "divides an integer by 0. The result on a TPU is -1"
_REMAINDER = "divides an integer by 0. The result on a TPU is the dividend"
_SHIFTS = "shifts by {value} bits, which is not in [0, {limit}). A TPU shifts out all bits"


def _per_operation(operations, *args, **kwargs):
    return dict.fromkeys(operations, Rule(*args, **kwargs))


RULES = {
    **_per_operation(("Gather", "GatherV2"), _gather, _READS, _gathers_within),
    **_per_operation(["ResourceGather"], _resource_gather, _READS),
    **_per_operation(["GatherNd"], _gather_nd, _READS),
    **_per_operation(["ResourceGatherNd"], _resource_gather_nd, _READS, repair=_gather_nd_of_value),
    **_per_operation(
        ("TensorListGetItem", "TensorListSetItem", "TensorListGather"),
        _list_item,
        _ITEM,
        repair=_nearest_list_item,
    ),
    **_per_operation(
        ("TensorArrayReadV3", "TensorArrayGatherV3"),
        _array_item,
        _READS,
        repair=_nearest_array_item,
    ),
    **_per_operation(
        ("TensorArrayWriteV3", "TensorArrayScatterV3"),
        _array_item,
        _ITEM,
        _writes_no_gradient,
        _nearest_array_item,
    ),
    **_per_operation(
        ["Slice"],
        _slice,
        "begins at {value}, which is not in [0, {limit}). A TPU begins at the nearest valid index",
        _has_constant_begin,
        _nearest_slice,
    ),
    **_per_operation(
        ("StridedSlice", "StridedSliceGrad"),
        _single_rows,
        "has index {value} for a size of {limit}. A TPU uses the nearest valid index",
        _has_no_index,
        _nearest_rows,
    ),
    **_per_operation(["ScatterNd"], _scatter_nd, _WRITES),
    **_per_operation(
        [f"TensorScatter{kind}" for kind in ("Update", "Add", "Sub", "Min", "Max")],
        _tensor_scatter,
        _WRITES,
    ),
    **_per_operation(
        [f"ResourceScatter{kind}" for kind in ("Update", "Add", "Sub", "Mul", "Div", "Min", "Max")],
        _resource_scatter,
        _WRITES,
    ),
    **_per_operation(
        [f"ResourceScatterNd{kind}" for kind in ("Update", "Add", "Sub")],
        _resource_gather_nd,
        _WRITES,
    ),
    **_per_operation(
        [f"UnsortedSegment{kind}" for kind in ("Sum", "Max", "Min", "Prod")],
        _segments,
        "has segment id {value}, which is not below {limit}. A TPU ignores it",
    ),
    **_per_operation(
        ("Bincount", "DenseBincount"), _negative, "counts {value}. A TPU ignores negative values"
    ),
    **_per_operation(["SparseToDense"], _sparse_indices, _WRITES),
    **_per_operation(
        ["SparseSoftmaxCrossEntropyWithLogits"],
        _labels,
        "has label {value}, which is not in [0, {limit}). The loss on a TPU is NaN",
    ),
    **_per_operation(
        ("Div", "FloorDiv", "TruncateDiv"), _zero, _DIVIDES, _is_float_or_divides_by_constant
    ),
    **_per_operation(
        ("Mod", "FloorMod", "TruncateMod"), _zero, _REMAINDER, _is_float_or_divides_by_constant
    ),
    **_per_operation(
        ["Pow"],
        _negative_power,
        "raises an integer to the power {value}. The result on a TPU is 0, or 1 or -1",
        _is_float_or_constant_power,
    ),
    **_per_operation(
        ["Cast"],
        _unrepresentable,
        "converts {value} to an integer. The result on a TPU is the nearest integer of the type, "
        "0 for NaN",
        _casts_no_float,
    ),
    **_per_operation(("LeftShift", "RightShift"), _shifts, _SHIFTS, _shifts_by_constant),
    **_per_operation(
        ["ReverseSequence"],
        _lengths,
        "reverses {value} of {limit} elements. A TPU clamps its indices",
    ),
    **_per_operation(
        ["InvertPermutation"],
        _no_permutation,
        "inverts values that are not a permutation. A TPU ignores invalid values",
    ),
    **_per_operation(
        ["Assert"], _false, "fails. A TPU has no assertions and continues", repair=_nothing
    ),
    **_per_operation(
        ["CheckNumerics"],
        _not_finite,
        "finds {value}. A TPU does not check it and continues",
        repair=_first_input,
    ),
    **_per_operation(
        ("MatrixInverse", "MatrixSolve"),
        _singular,
        "has a singular matrix. The result on a TPU is not finite, or arbitrary",
    ),
    **_per_operation(
        ["MatrixTriangularSolve"],
        _zero_on_diagonal,
        "has a singular matrix, with {value} on its diagonal. The result on a TPU is arbitrary",
    ),
    **_per_operation(
        ["SelfAdjointEigV2"], _not_finite, "has a value {value}. The result on a TPU is NaN"
    ),
    **_per_operation(
        [f"QuantizeAndDequantizeV{version}" for version in (2, 3, 4)],
        _reversed_range,
        "has a minimum of {value} above its maximum of {limit}. A TPU does not check it",
        _has_no_range,
    ),
    **_per_operation(["Conv3D"], _OF_KERNEL, "", _is_not_grouped),
    **_per_operation(
        ("Conv2DBackpropInput", "Conv3DBackpropInputV2"), _OF_INPUT_GRADIENT, "", _is_not_grouped
    ),
    **_per_operation(
        ("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"), _OF_FILTER_GRADIENT, "", _is_not_grouped
    ),
}
