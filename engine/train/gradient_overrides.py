"""Gradients of Conv2D and BiasAdd that avoid CPU kernels with wrong results."""

from __future__ import annotations

import contextlib

import tensorflow as tf
from tensorflow.python.framework import ops

from models.layers import device

_CONV2D = "Conv2DGradientOfReadPixels"
_BIAS_ADD = "BiasAddGradientInFloat32"
# Channels per vector of oneDNN's widest kernels, those of AVX-512.
_VECTOR_CHANNELS = 16


@contextlib.contextmanager
def override_gradients(params):
    """Overrides the gradients of the ops that are built in this context.

    Use it for training graphs only: an exported graph must not need this module. The override is a
    property of the graph, not of the thread: replicas of a strategy, which are built in turns, may
    lose it.

    Args:
      params: hyperparameters. With `precision` bfloat16 the gradient of BiasAdd is overridden,
        except on a TPU, which sums bfloat16 in float32.
    """
    gradients = {"Conv2D": _CONV2D}
    if params.get("precision") == "bfloat16" and not device.from_params(params).is_tpu:
        gradients["BiasAdd"] = _BIAS_ADD
    with tf.compat.v1.get_default_graph().gradient_override_map(gradients):
        yield


@tf.RegisterGradient(_CONV2D)
def _conv2d_gradient(op, gradient):
    """Computes the filter gradient of a strided 1x1 convolution from the pixels that it reads.

    oneDNN's kernel for it writes past its workspace if the input has fewer channels than a vector:
    the result is wrong or the process crashes (oneDNN issue 6035, with AVX2 and AVX-512).
    TensorFlow 2.15 uses oneDNN by default on CPUs with VNNI, AVX512_BF16 or AMX.
    """
    x, kernel = op.inputs
    _, *strides, _ = op.get_attr("strides")
    is_1x1 = kernel.shape[:2].as_list() == [1, 1]
    is_default_layout = op.get_attr("data_format") == b"NHWC" and not any(
        op.get_attr("explicit_paddings")
    )
    channels = tf.compat.dimension_value(kernel.shape[2]) if is_1x1 else None
    if not (
        is_1x1 and is_default_layout and max(strides) > 1 and (channels or 0) < _VECTOR_CHANNELS
    ):
        return ops.gradient_registry.lookup("Conv2D")(op, gradient)
    backprop_input = tf.compat.v1.nn.conv2d_backprop_input
    backprop_filter = tf.compat.v1.nn.conv2d_backprop_filter
    read = x[:, :: strides[0], :: strides[1]]
    return (
        backprop_input(tf.shape(x), kernel, gradient, [1, *strides, 1], "VALID"),
        backprop_filter(read, tf.shape(kernel), gradient, [1, 1, 1, 1], "VALID"),
    )


@tf.RegisterGradient(_BIAS_ADD)
def _bias_add_gradient(op, gradient):
    """Sums the gradient with a matrix product, which accumulates in float32 and is twice as fast.

    TensorFlow's BiasAddGrad accumulates bfloat16 in bfloat16 on a CPU, where 512 + 1 is 512.
    """
    if op.get_attr("data_format") == b"NCHW":
        axes = [0, *range(2, gradient.shape.rank)]
        total = tf.reduce_sum(tf.cast(gradient, tf.float32), axes)
        return gradient, tf.cast(total, gradient.dtype)
    flat = tf.reshape(gradient, [-1, gradient.shape[-1]])
    return gradient, tf.matmul(tf.ones([1, tf.shape(flat)[0]], flat.dtype), flat)[0]
