"""Indices that are out of range: XLA clamps those that it reads, and drops those that it writes."""

from __future__ import annotations

import tensorflow as tf

from tpu.emulator.xla_rules import cast, dimension, outside, rule, static_size, static_value
from tpu.graph.walks import root

raw = tf.raw_ops
_READS = "reads index {value}, which is not in [0, {limit}). A TPU reads the nearest valid index"
_WRITES = "writes index {value}, which is not in [0, {limit}). A TPU ignores it"
_ITEM = "has index {value}, which is not in [0, {limit}). A TPU uses the nearest valid index"


def _variable_shape(call, dtype=tf.int32):
    if call.variable_shape is not None:
        return tf.constant(call.variable_shape, dtype)
    return raw.VariableShape(input=call.inputs[0], out_type=dtype)


def _clamp(values, low, high):
    """Returns integers within bounds that are tensors of any integer type."""
    low, high = tf.cast(low, values.dtype), tf.cast(high, values.dtype)
    return tf.maximum(tf.minimum(values, high), low)


def _index_vectors(indices, shape):
    """Finds index vectors `[..., k]` that are not in a tensor of this shape."""
    limits = tf.broadcast_to(
        tf.cast(shape, indices.dtype)[: tf.shape(indices)[-1]], tf.shape(indices)
    )
    mask = (indices < 0) | (indices >= limits)
    return mask, indices, limits


# ---- Elements that are read. The batch dimensions of a gather do not change the axis. ----


def _gathers_within(op):
    indices = static_value(op.inputs[1])
    if indices is None or indices.size == 0:
        return indices is not None
    axis = static_value(op.inputs[2]) if len(op.inputs) > 2 else 0
    size = static_size(op.inputs[0], axis)
    return size is not None and indices.min() >= 0 and indices.max() < size


@rule("Gather", "GatherV2", message=_READS, is_safe=_gathers_within)
def _gather(call):
    params, indices = call.inputs[:2]
    axis = call.inputs[2] if len(call.inputs) > 2 else 0
    return outside(indices, dimension(params, axis))


@rule("ResourceGather", message=_READS)
def _resource_gather(call):
    axis = call.attribute("batch_dims")
    if call.variable_shape is not None:
        return outside(call.inputs[1], call.variable_shape[axis])
    return outside(call.inputs[1], _variable_shape(call, tf.int64)[axis])


@rule("GatherNd", message=_READS)
def _gather_nd(call):
    return _index_vectors(call.inputs[1], tf.shape(call.inputs[0]))


def _gather_nd_of_value(call):
    value = raw.ReadVariableOp(resource=call.inputs[0], dtype=call.attribute("dtype"))
    compiled = tf.function(
        lambda value, indices: raw.GatherNd(params=value, indices=indices),
        autograph=False,
        jit_compile=True,
    )
    return [compiled(value, call.inputs[1])]


@rule("ResourceGatherNd", message=_READS, repair=_gather_nd_of_value)
@rule(*(f"ResourceScatterNd{kind}" for kind in ("Update", "Add", "Sub")), message=_WRITES)
def _resource_gather_nd(call):
    return _index_vectors(call.inputs[1], _variable_shape(call))


def _nearest_list_item(call):
    handle, index, *others = call.inputs
    size = raw.TensorListLength(input_handle=handle)
    return call.run(handle, _clamp(index, 0, size - 1), *others)


@rule(
    *("TensorListGetItem", "TensorListSetItem", "TensorListGather"),
    message=_ITEM,
    repair=_nearest_list_item,
)
def _list_item(call):
    return outside(call.inputs[1], raw.TensorListLength(input_handle=call.inputs[0]))


def _nearest_array_item(call):
    handle, index, *others = call.inputs
    size = raw.TensorArraySizeV3(handle=handle, flow_in=call.inputs[-1])
    return call.run(handle, _clamp(index, 0, size - 1), *others)


def _writes_no_gradient(op):
    # A gradient array adds values of the same index; others accept one value per index.
    return root(op.inputs[0]).op.type == "TensorArrayV3"


@rule("TensorArrayReadV3", "TensorArrayGatherV3", message=_READS, repair=_nearest_array_item)
@rule(
    *("TensorArrayWriteV3", "TensorArrayScatterV3"),
    message=_ITEM,
    is_safe=_writes_no_gradient,
    repair=_nearest_array_item,
)
def _array_item(call):
    size = raw.TensorArraySizeV3(handle=call.inputs[0], flow_in=call.inputs[-1])
    return outside(call.inputs[1], size)


# ---- Slices that are read ----


def _last_begin(call):
    value, begin, size = call.inputs
    shape = tf.shape(value, begin.dtype)
    return shape - tf.where(size < 0, tf.maximum(shape - begin, 0), size)


def _nearest_slice(call):
    value, begin, size = call.inputs
    return call.run(value, _clamp(begin, 0, _last_begin(call)), size)


@rule(
    "Slice",
    message="begins at {value}, which is not in [0, {limit}). A TPU begins at the nearest valid "
    "index",
    is_safe=lambda op: static_value(op.inputs[1]) is not None,
    repair=_nearest_slice,
)
def _slice(call):
    last, begin = _last_begin(call), call.inputs[1]
    return (begin < 0) | (begin > last), begin, last + 1


def _nearest_rows(call):
    begin = call.inputs[1]
    is_index, sizes = _sliced_dimensions(call)
    inputs = list(call.inputs)
    inputs[1] = tf.where(is_index, _clamp(begin, -sizes, sizes - 1), begin)
    # A slice of one element: the end has no meaning, but must not be before the beginning.
    inputs[2] = tf.where(is_index, inputs[1] + 1, inputs[2])
    return call.run(*inputs)


def _has_no_index(op):
    return not op.get_attr("shrink_axis_mask") or static_value(op.inputs[1]) is not None


@rule(
    *("StridedSlice", "StridedSliceGrad"),
    message="has index {value} for a size of {limit}. A TPU uses the nearest valid index",
    is_safe=_has_no_index,
    repair=_nearest_rows,
)
def _single_rows(call):
    """Finds the indices of `x[i]` that are not in [-size, size)."""
    begin = call.inputs[1]
    is_index, sizes = _sliced_dimensions(call)
    return is_index & ((begin < -sizes) | (begin >= sizes)), begin, sizes


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
    position = position - before + tf.where(is_after, tf.size(shape) - named - 1, 0)
    is_index = masks["shrink_axis"] & ~masks["new_axis"] & ~masks["ellipsis"]
    position = tf.where(is_index, position, 0)
    return is_index, tf.gather(tf.concat([shape, [1]], 0), position)


# ---- Elements that are written ----


@rule("ScatterNd", message=_WRITES)
def _scatter_nd(call):
    return _index_vectors(call.inputs[0], call.inputs[2])


@rule(*(f"TensorScatter{kind}" for kind in ("Update", "Add", "Sub", "Min", "Max")), message=_WRITES)
def _tensor_scatter(call):
    return _index_vectors(call.inputs[1], tf.shape(call.inputs[0]))


@rule(
    *(f"ResourceScatter{kind}" for kind in ("Update", "Add", "Sub", "Mul", "Div", "Min", "Max")),
    message=_WRITES,
)
def _resource_scatter(call):
    return outside(call.inputs[1], _variable_shape(call, tf.int64)[0])


@rule(
    *(f"UnsortedSegment{kind}" for kind in ("Sum", "Max", "Min", "Prod")),
    message="has segment id {value}, which is not below {limit}. A TPU ignores it",
)
def _segments(call):
    ids, limit = call.inputs[1], cast(call.inputs[2], call.inputs[1].dtype)
    return ids >= limit, ids, limit


@rule("Bincount", "DenseBincount", message="counts {value}. A TPU ignores negative values")
def _negative(call):
    values = call.inputs[0]
    return values < 0, values, 0


@rule("SparseToDense", message=_WRITES)
def _sparse_indices(call):
    indices, shape = call.inputs[:2]
    sizes = tf.broadcast_dynamic_shape(tf.shape(indices), tf.shape(shape))  # a scalar is one row
    indices = tf.broadcast_to(indices, sizes)
    limits = tf.broadcast_to(tf.cast(shape, indices.dtype), sizes)
    return (indices < 0) | (indices >= limits), indices, limits
