"""Values that a kernel for a CPU refuses or computes otherwise, and that a TPU accepts.

TensorFlow's kernels for a CPU raise an error for an index out of range, a division by 0 or a failed
assertion. A TPU has no such errors: XLA clamps, drops or computes something. Each rule finds these
values, so that `xla_values` can let XLA compute the result. `invalid_indices` has the rules about
indices.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tpu.emulator import invalid_indices
from tpu.emulator.xla_rules import RULES, dimension, outside, rule, static_size, static_value
from tpu.graph.walks import root

__all__ = ["RULES", "invalid_indices"]


@rule(
    "SparseSoftmaxCrossEntropyWithLogits",
    message="has label {value}, which is not in [0, {limit}). The loss on a TPU is NaN",
)
def _labels(call):
    logits, labels = call.inputs
    return outside(labels, dimension(logits, -1))


# ---- Arithmetic ----


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


@rule(
    *("Div", "FloorDiv", "TruncateDiv"),
    message="divides an integer by 0. The result on a TPU is -1",
    is_safe=_is_float_or_divides_by_constant,
)
@rule(
    *("Mod", "FloorMod", "TruncateMod"),
    message="divides an integer by 0. The result on a TPU is the dividend",
    is_safe=_is_float_or_divides_by_constant,
)
def _zero(call):
    divisor = call.inputs[1]
    return tf.equal(divisor, 0), divisor, 0


def _is_float_or_constant_power(op):
    power = static_value(op.inputs[1])
    return not op.inputs[0].dtype.is_integer or (power is not None and bool(np.all(power >= 0)))


@rule(
    "Pow",
    message="raises an integer to the power {value}. The result on a TPU is 0, or 1 or -1",
    is_safe=_is_float_or_constant_power,
)
def _negative_power(call):
    power = call.inputs[1]
    return power < 0, power, 0


def _casts_no_float(op):
    source, target = op.inputs[0].dtype, op.outputs[0].dtype
    return not (source.is_floating and target.is_integer)


@rule(
    "Cast",
    message="converts {value} to an integer. The result on a TPU is the nearest integer of the "
    "type, 0 for NaN",
    is_safe=_casts_no_float,
)
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


def _shifts_by_constant(op):
    shift = static_value(op.inputs[1])
    bits = op.inputs[0].dtype.size * 8
    return shift is not None and bool(np.all((shift >= 0) & (shift < bits)))


@rule(
    *("LeftShift", "RightShift"),
    message="shifts by {value} bits, which is not in [0, {limit}). A TPU shifts out all bits",
    is_safe=_shifts_by_constant,
)
def _shifts(call):
    value, shift = call.inputs
    shift = tf.broadcast_to(shift, tf.broadcast_dynamic_shape(tf.shape(value), tf.shape(shift)))
    return outside(shift, value.dtype.size * 8)


@rule(
    *(f"QuantizeAndDequantizeV{version}" for version in (2, 3, 4)),
    message="has a minimum of {value} above its maximum of {limit}. A TPU does not check it",
    is_safe=lambda op: not op.get_attr("range_given"),
)
def _reversed_range(call):
    low, high = call.inputs[1:3]
    return low > high, low, high


# ---- Orders ----


@rule("ReverseSequence", message="reverses {value} of {limit} elements. A TPU clamps its indices")
def _lengths(call):
    value, lengths = call.inputs
    size = tf.cast(dimension(value, call.attribute("seq_dim")), lengths.dtype)
    return (lengths < 0) | (lengths > size), lengths, size


@rule(
    "InvertPermutation",
    message="inverts values that are not a permutation. A TPU ignores invalid values",
)
def _no_permutation(call):
    values = call.inputs[0]
    mask, _, limit = outside(values, tf.size(values))
    positions = tf.range(tf.size(values), dtype=values.dtype)
    is_missing = ~tf.reduce_any(tf.equal(values[:, tf.newaxis], positions), 0)
    return mask | is_missing, values, limit


# ---- Checks, and values that are not finite ----


@rule(
    "Assert",
    message="fails. A TPU has no assertions and continues",
    repair=lambda call: [tf.no_op()],
)
def _false(call):
    condition = call.inputs[0]
    return ~condition, condition, 0


@rule(
    "CheckNumerics",
    message="finds {value}. A TPU does not check it and continues",
    repair=lambda call: [tf.identity(call.inputs[0])],
)
@rule("SelfAdjointEigV2", message="has a value {value}. The result on a TPU is NaN")
def _not_finite(call):
    value = call.inputs[0]
    return ~tf.math.is_finite(value), value, 0


@rule(
    *("MatrixInverse", "MatrixSolve"),
    message="has a singular matrix. The result on a TPU is not finite, or arbitrary",
)
def _singular(call):
    determinant = tf.linalg.det(call.inputs[0])
    return ~tf.math.is_finite(determinant) | tf.equal(determinant, 0), determinant, 0


@rule(
    "MatrixTriangularSolve",
    message="has a singular matrix, with {value} on its diagonal. The result on a TPU is arbitrary",
)
def _zero_on_diagonal(call):
    diagonal = tf.linalg.diag_part(call.inputs[0])
    return tf.equal(diagonal, 0), diagonal, 0


# ---- Convolutions with groups, whose gradients a CPU does not compute ----

_SIZES = {0: ("BackpropInput", "BackpropInputV2"), 1: ("BackpropFilter", "BackpropFilterV2")}


def _is_not_grouped(op):
    """True if the static shapes show that a convolution has one group."""
    sizes = []
    for index, axis in ((0, -1), (1, -2)):
        tensor = op.inputs[index]
        if "Backprop" in op.type and op.type.endswith(_SIZES[index]):
            shape = static_value(tensor)
            sizes.append(None if shape is None else int(shape[axis]))
        else:
            sizes.append(static_size(tensor, axis))
    return None not in sizes and sizes[0] == sizes[1]


def _grouped(input_shape, kernel_shape):
    channels, of_kernel = (tf.cast(s, tf.int64) for s in (input_shape[-1], kernel_shape[-2]))
    return tf.not_equal(channels, of_kernel), channels, of_kernel


@rule("Conv3D", is_safe=_is_not_grouped)
def _grouped_kernel(call):
    return _grouped(tf.shape(call.inputs[0]), tf.shape(call.inputs[1]))


@rule("Conv2DBackpropInput", "Conv3DBackpropInputV2", is_safe=_is_not_grouped)
def _grouped_input_gradient(call):
    return _grouped(call.inputs[0], tf.shape(call.inputs[1]))


@rule("Conv2DBackpropFilter", "Conv3DBackpropFilterV2", is_safe=_is_not_grouped)
def _grouped_filter_gradient(call):
    return _grouped(tf.shape(call.inputs[0]), call.inputs[1])
