"""Gradients that replace TensorFlow's own where a kernel of a CPU computes them wrong."""

from __future__ import annotations

import contextlib

import tensorflow as tf
from tensorflow.python.framework import ops

_CONV2D = "Conv2DWithoutUnreadPixels"
_BIAS_ADD = "BiasAddWithItsGradientSummedInFloat32"
# Channels of the widest vector of oneDNN's kernels, those of AVX-512.
_VECTOR_CHANNELS = 16


@contextlib.contextmanager
def override_gradients(params):
    """Overrides the gradients of the operations that are built in this context.

    For training graphs only: an exported graph must not need this module. The override belongs to
    the graph, not to a thread: replicas of a strategy that take turns may lose it.

    Args:
      params: hyperparameters; `precision` chooses the gradients, and `use_tpu` says that the graph
        is a TPU's, which adds up bfloat16 in float32.
    """
    gradients = {"Conv2D": _CONV2D}
    if params.get("precision") == "bfloat16" and not params.get("use_tpu"):
        gradients["BiasAdd"] = _BIAS_ADD
    with tf.compat.v1.get_default_graph().gradient_override_map(gradients):
        yield


@tf.RegisterGradient(_CONV2D)
def _gradients_of_conv2d(op, gradient):
    """Leaves out the pixels that a strided 1x1 convolution does not read.

    oneDNN's gradient of such a filter, for fewer input channels than a vector has, writes past its
    workspace: the result is wrong, or the process crashes (oneDNN issue 6035, with AVX2 and with
    AVX-512). TensorFlow 2.15 uses oneDNN by default where a CPU has VNNI, AVX512_BF16 or AMX.
    """
    x, kernel = op.inputs
    _, *strides, _ = op.get_attr("strides")
    is_1x1 = kernel.shape[:2].as_list() == [1, 1]
    is_plain = op.get_attr("data_format") == b"NHWC" and not any(op.get_attr("explicit_paddings"))
    channels = tf.compat.dimension_value(kernel.shape[2]) if is_1x1 else None
    if not (is_1x1 and is_plain and max(strides) > 1 and (channels or 0) < _VECTOR_CHANNELS):
        return ops.gradient_registry.lookup("Conv2D")(op, gradient)
    backprop_input = tf.compat.v1.nn.conv2d_backprop_input
    backprop_filter = tf.compat.v1.nn.conv2d_backprop_filter
    read = x[:, :: strides[0], :: strides[1]]
    return (
        backprop_input(tf.shape(x), kernel, gradient, [1, *strides, 1], "VALID"),
        backprop_filter(read, tf.shape(kernel), gradient, [1, 1, 1, 1], "VALID"),
    )


@tf.RegisterGradient(_BIAS_ADD)
def _gradients_of_bias_add(op, gradient):
    """Sums by a product, which adds up in float32, and in half the time.

    TensorFlow's BiasAddGrad adds up bfloat16 in bfloat16 on a CPU, where 512 + 1 is 512.
    """
    if op.get_attr("data_format") == b"NCHW":
        axes = [0, *range(2, gradient.shape.rank)]
        total = tf.reduce_sum(tf.cast(gradient, tf.float32), axes)
        return gradient, tf.cast(total, gradient.dtype)
    flat = tf.reshape(gradient, [-1, gradient.shape[-1]])
    return gradient, tf.matmul(tf.ones([1, tf.shape(flat)[0]], flat.dtype), flat)[0]
