"""Floating-point operations of a step, from the graph."""

from __future__ import annotations

import math

from tensorflow.python.framework import ops

from tpu.check.executions import Executions
from tpu.graph.flat_program import FlatProgram

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


def count_flops(program: FlatProgram, executions: Executions) -> tuple[int, tuple[str, ...]]:
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
