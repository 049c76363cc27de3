"""Counts the floating-point operations of a training step in its graph."""

from __future__ import annotations

import math

import tensorflow as tf
from tensorflow.python.framework import ops

# TensorFlow's own count ignores padding and strides in gradients of convolutions, and lacks those
# of depthwise convolutions. Type -> indices of the inputs with the shapes of the output of the
# convolution and of the kernel; None: the output of the operation has that shape.
_CONVOLUTIONS = {
    "Conv2D": (None, 1),
    "Conv2DBackpropInput": (2, 1),
    "Conv2DBackpropFilter": (2, None),
    "DepthwiseConv2dNative": (None, 1),
    "DepthwiseConv2dNativeBackpropInput": (2, 1),
    "DepthwiseConv2dNativeBackpropFilter": (2, None),
}


def count(fetches) -> int:
    """Returns the FLOPs of running the fetches; those of a convolution are 2 x outputs x kernel.

    Args:
      fetches: nested structure of tensors and operations of one graph.
    """
    return sum(_flops(op) for op in _needed(fetches))


def _needed(fetches):
    """Returns the operations whose values the fetches need.

    Excludes inputs of shape operations, which the graph optimizer replaces by constants, and
    operations without side effects that are only control inputs.
    """
    pending = [(getattr(fetch, "op", fetch), True) for fetch in tf.nest.flatten(fetches)]
    needed, seen = set(), set()
    while pending:
        op, is_read = pending.pop()
        is_read = is_read or _has_side_effects(op)
        if op in needed or (op in seen and not is_read):
            continue
        (needed if is_read else seen).add(op)
        reads = is_read and op.type not in ("Rank", "Shape", "ShapeN", "Size")
        pending += [(tensor.op, reads) for tensor in op.inputs]
        pending += [(before, False) for before in op.control_inputs]
    return needed


def _has_side_effects(op):
    # Operations on reference variables take a reference and are not marked as stateful.
    return op.op_def.is_stateful or any(tensor.dtype._is_ref_dtype for tensor in op.inputs)


def _flops(op):
    if op.type in _CONVOLUTIONS:
        outputs, kernel = (
            (op.outputs[0] if place is None else op.inputs[place]).shape.as_list()
            for place in _CONVOLUTIONS[op.type]
        )
        # Each output is a sum over the kernel's window and, unless depthwise, over channels.
        summed = kernel[:2] if op.type.startswith("Depthwise") else kernel[:3]
        return 2 * math.prod(outputs) * math.prod(summed)
    try:
        return int(ops.get_stats_for_node_def(op.graph, op.node_def, "flops").value or 0)
    except ValueError:  # unknown shapes, of input bookkeeping
        return 0
