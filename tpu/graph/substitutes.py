"""Equivalents, for XLA on a CPU, of operations that only a TPU has a kernel for.

XLA on a CPU lowers the step, and refuses what it has no kernel for. An equivalent of the same
values keeps the step compilable; its cost on a TPU may differ from that of the TPU's kernel.
"""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import graph_to_function_def

from tpu.graph import nodes as node_defs

# Operations with a TPU kernel but none of XLA on a CPU, other than `collectives.KINDS`.
TPU_ONLY = (
    *("XlaAllReduce", "XlaReduceScatter", "KthOrderStatistic", "MakeUnique", "TopKUnique"),
    *("TopKWithUnique", "ResizeNearestNeighborGrad"),
    *("ComputeDedupDataSize", "ComputeDedupDataTupleMask", "MergeDedupData", "SplitDedupData"),
    *("XlaRecvTPUEmbeddingActivations", "XlaRecvTPUEmbeddingDeduplicationData"),
    "XlaSendTPUEmbeddingGradients",
)


def substitute(op: tf.Operation, node, library) -> bool:
    """Replaces a copy of the node of an operation by an equivalent; see `replace`.

    Returns:
      False if there is no equivalent; `node` is unchanged then.
    """
    compute = _SUBSTITUTES.get(op.type)
    if compute is None or not op.inputs[0].shape.is_fully_defined():
        return False
    value = op.inputs[0]
    return replace(node, library, functools.partial(compute, op), [(node.input[0], value)])


def replace(node, library, compute, inputs) -> bool:
    """Replaces a node of a graph or of a function by the call of a function.

    Args:
      node: the NodeDef. Its only output has the name "output", as that of the call.
      library: the FunctionDefLibrary, which gets the function.
      compute: from the inputs, as tensors, to the new output; None if there is no equivalent.
      inputs: (name of an input where the node is, tensor or TensorSpec of its dtype and shape).

    Returns:
      False if `compute` returned None; `node` is unchanged then.
    """
    with tf.Graph().as_default() as graph:
        values = [tf.compat.v1.placeholder(like.dtype, like.shape) for _, like in inputs]
        result = compute(*values)
        if result is None:
            return False
        inner = [op for op in graph.get_operations() if op.type != "Placeholder"]
        function = graph_to_function_def.graph_to_function_def(graph, inner, values, [result])
    function.signature.name = f"substitute_{len(library.function)}"
    library.function.append(function)
    node_defs.replace(
        node,
        "PartitionedCall",
        [*(name for name, _ in inputs), *node_defs.control_inputs(node)],
        f=attr_value_pb2.NameAttrList(name=function.signature.name),
        Tin=[value.dtype for value in values],
        Tout=[result.dtype],
    )
    return True


def _resize_nearest_neighbor_grad(op, gradient):
    """Sums the gradient over the pixels that copy each input pixel."""
    size = tf.get_static_value(op.inputs[1])
    if size is None:
        return None
    options = [op.get_attr(name) for name in ("align_corners", "half_pixel_centers")]
    batch, height, width, channels = gradient.shape.as_list()
    rows, columns = map(int, size)
    down, right = height / rows, width / columns
    if down.is_integer() and right.is_integer() and not options[0]:
        parts = tf.reshape(gradient, [batch, rows, int(down), columns, int(right), channels])
        return tf.reduce_sum(parts, [2, 4])
    vertical = _copies(height, rows, *options).astype(gradient.dtype.as_numpy_dtype)
    horizontal = _copies(width, columns, *options).astype(gradient.dtype.as_numpy_dtype)
    return tf.einsum("bhwc,hy,wx->byxc", gradient, vertical, horizontal)


def _copies(num_out, num_in, align_corners, half_pixel_centers):
    """Returns the 0-1 matrix [num_out, num_in] of which input pixel an output pixel copies."""
    out = np.arange(num_out) + (0.5 if half_pixel_centers else 0)
    if align_corners and num_out > 1:
        index = np.floor(out * (num_in - 1) / (num_out - 1) + 0.5)  # rounds half up
    else:
        index = np.floor(out * num_in / num_out)
    return np.eye(num_in)[np.minimum(index.astype(int), num_in - 1)]


_SUBSTITUTES = {"ResizeNearestNeighborGrad": _resize_nearest_neighbor_grad}
