"""The lint rule about shapes that depend on data."""

from __future__ import annotations

import tensorflow as tf

from tpu.check.step import rule
from tpu.findings import ERROR, WARNING
from tpu.graph import op_types, tpu_kernels
from tpu.graph.placement import used_inputs

# Which inputs give the shape of the output, of operations whose other inputs have static shapes.
_SHAPE_INPUTS = {
    **dict.fromkeys(("Fill", "RandomUniform", "RandomStandardNormal", "RandomUniformInt"), (0,)),
    **dict.fromkeys(("TruncatedNormal",), (0,)),
    **dict.fromkeys(("Reshape", "Tile", "Pad", "PadV2", "MirrorPad", "BroadcastTo"), (1,)),
    **dict.fromkeys(("OneHot", "TopKV2", "SplitV"), (1,)),
    **dict.fromkeys(("ScatterNd", "UnsortedSegmentSum"), (2,)),
    "Slice": (1, 2),
    "StridedSlice": (1, 2, 3),
}
# Operations that read elements of lists. XLA knows their shape, TensorFlow often does not.
_ELEMENT_OPS = (
    *("TensorArrayReadV3", "TensorArrayGatherV3", "TensorArrayConcatV3", "StackPopV2"),
    *("TensorListGetItem", "TensorListPopBack", "TensorListStack", "TensorListGather"),
)
# Reserved outputs of FusedBatchNormV3 have no static shape, and need none.
_IGNORED_OPS = (*tpu_kernels.RUNTIME_OPS, *_ELEMENT_OPS, *op_types.SIZES, "FusedBatchNormV3")
_BINARY_OPS = (
    *("Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "FloorDiv", "FloorMod", "Pow"),
    *("Maximum", "Minimum", "SquaredDifference", "Greater", "GreaterEqual", "Less", "LessEqual"),
    *("Equal", "NotEqual", "LogicalAnd", "LogicalOr", "Atan2"),
)
# Operations that XLA computes with a constant or a reduction, broadcast to the shape of the input.
_BROADCASTING_OPS = (
    *("BiasAdd", "LeakyRelu", "Softplus", "Elu", "Relu6", "Erf", "LogSoftmax", "ArgMax", "ArgMin"),
    *("SparseSoftmaxCrossEntropyWithLogits", "ClipByValue", "Tile", "StridedSliceGrad"),
)


@rule
def check_dynamic_shapes(step):
    """Operations whose output shape depends on data, and those that the TPU compiler refuses."""
    dynamic = set()  # names of the tensors whose shape, or value as a shape, depends on data
    for op in step.operations:
        depends = any(tensor.name in dynamic for tensor in used_inputs(op))
        is_static = op.name in step.static
        results = [tensor for tensor in op.outputs if _is_dynamic(tensor)]
        if depends:  # sizes count too
            dynamic |= {tensor.name for tensor in (op.outputs if is_static else results)}
        if op.type in _IGNORED_OPS:
            continue
        if depends:
            reason = _refusal(op, dynamic)
            if reason:
                message = (
                    f"{op.type} {reason}: its shape depends on data, and the TPU compiler refuses "
                    "that. Use a static shape and a mask"
                )
                yield ERROR, "tpu-compiler", message, op
        elif results and not (is_static or any(map(_is_dynamic, op.inputs))):
            if _has_static_shape(step, op) or _gives_static_shapes(op):
                continue
            dynamic |= {tensor.name for tensor in results}
            for tensor in results:
                if _is_read(step, tensor):
                    message = (
                        f"{op.type} has the dynamic shape {tensor.shape}: XLA pads it to its "
                        "largest size, or refuses the program. Use a static shape and a mask"
                    )
                    yield WARNING, "dynamic-shape", message, op


def _is_dynamic(tensor):
    return tensor.dtype not in (tf.resource, tf.variant) and not tensor.shape.is_fully_defined()


def _has_static_shape(step, op):
    """Returns True if the inputs that give the shape of an output are known without data."""
    indices = _SHAPE_INPUTS.get(op.type)
    if indices is None or len(op.inputs) <= max(indices):
        return False
    return all(op.inputs[i].op.name in step.static for i in indices)


def _gives_static_shapes(op):
    """Returns True if the shapes of the inputs give those of the outputs.

    TensorFlow may not know them: a function of any size returns tensors of unknown shape.
    """
    attributes = {k: v for k, v in op.node_def.attr.items() if not k.startswith("_")}
    dtypes = [tensor.dtype for tensor in op.outputs]
    with tf.Graph().as_default() as graph:
        inputs = [tf.compat.v1.placeholder(t.dtype, t.shape) for t in op.inputs]
        outputs = graph.create_op(op.type, inputs, dtypes, attrs=attributes).outputs
    return not any(map(_is_dynamic, outputs))


def _refusal(op, dynamic):
    """Returns what libtpu 0.0.34 refuses about an operation on dynamic shapes; "" for nothing.

    It pads values for sums, products and gathers, but not what combines them with values that it
    has to broadcast to their shape.
    """
    inputs = [t for t in op.inputs if t.name in dynamic and _is_dynamic(t)]
    if not inputs:
        return ""
    shape = inputs[0].shape
    is_kept = any(tensor.name in dynamic for tensor in op.outputs)
    is_mean = op.type == "Mean" and is_kept
    # With v2 behavior disabled, an element of the shape itself is a Dimension, never None.
    sizes = shape.as_list() if shape.rank is not None else []
    is_softmax = op.type == "Softmax" and len(sizes) > 1 and sizes[-1] not in (None, 1)
    if op.type in _BROADCASTING_OPS or is_mean or is_softmax:
        return f"of {shape}"
    if op.type not in _BINARY_OPS:
        return ""
    for other in op.inputs:
        if other.shape.is_fully_defined() and shape.rank is not None:
            padded = [1] * (shape.rank - other.shape.rank) + other.shape.as_list()
            if any(size is None and p == 1 for size, p in zip(shape.as_list(), padded)):
                return f"of {shape} and {other.shape}"
    return ""


def _is_read(step, tensor):
    """Returns True if an operation on the core uses the values of a tensor."""
    readers = [op for op in tensor.consumers() if op.name in step.placement.on_core]
    return any(used is tensor for op in readers for used in used_inputs(op))
