"""Floating-point operations of a training step, counted in its graph."""

from __future__ import annotations

import math

import tensorflow as tf
from tensorflow.python.framework import ops

# TensorFlow's own count takes gradients of convolutions for as large as their input, whatever
# their padding and strides, and has none for those of depthwise ones. Op -> where its output is
# that of the convolution, and where its kernel is: an input, or else the result.
_CONVOLUTIONS = {
    "Conv2D": (None, 1),
    "Conv2DBackpropInput": (2, 1),
    "Conv2DBackpropFilter": (2, None),
    "DepthwiseConv2dNative": (None, 1),
    "DepthwiseConv2dNativeBackpropInput": (2, 1),
    "DepthwiseConv2dNativeBackpropFilter": (2, None),
}


def count(fetches) -> int:
    """Returns the operations that fetching these needs; a convolution's are 2 x outputs x kernel.

    Args:
      fetches: tensors and operations of one graph, in any structure.
    """
    return sum(_of(op) for op in _needed(fetches))


def _needed(fetches):
    """Returns the operations whose results the fetches cannot do without.

    TensorFlow runs nothing for sizes that the graph knows, nor, unless it changes something, what
    is only to come before something else, as the gradient of the images before the first update.
    """
    left = [(getattr(fetch, "op", fetch), True) for fetch in tf.nest.flatten(fetches)]
    needed, seen = set(), set()
    while left:
        op, is_read = left.pop()
        is_read = is_read or _changes_something(op)
        if op in needed or (op in seen and not is_read):
            continue
        (needed if is_read else seen).add(op)
        reads = is_read and op.type not in ("Rank", "Shape", "ShapeN", "Size")
        left += [(tensor.op, reads) for tensor in op.inputs]
        left += [(before, False) for before in op.control_inputs]
    return needed


def _changes_something(op):
    # Of variables as TensorFlow 1 has them, operations take a reference.
    return op.op_def.is_stateful or any(tensor.dtype._is_ref_dtype for tensor in op.inputs)


def _of(op):
    if op.type in _CONVOLUTIONS:
        outputs, kernel = (
            (op.outputs[0] if place is None else op.inputs[place]).shape.as_list()
            for place in _CONVOLUTIONS[op.type]
        )
        # Each output is a sum over a window of the kernel, and, unless depthwise, over channels.
        summed = kernel[:2] if op.type.startswith("Depthwise") else kernel[:3]
        return 2 * math.prod(outputs) * math.prod(summed)
    try:
        return int(ops.get_stats_for_node_def(op.graph, op.node_def, "flops").value or 0)
    except ValueError:  # sizes that the graph does not know: of the input's bookkeeping
        return 0
