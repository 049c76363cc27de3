"""Parts of dense layers, for layers that share, split or reshape their kernels."""

from __future__ import annotations

import tensorflow as tf


def kernel_and_bias(name, shape, dtype):
    """Returns the variables of scope `name`: a kernel, and a bias that is 0 at first.

    Args:
      name: variable scope of `kernel` and `bias`.
      shape: of the kernel; its last dimension is that of the bias.
      dtype: of both.
    """
    with tf.compat.v1.variable_scope(name):
        kernel = tf.compat.v1.get_variable("kernel", shape, dtype)
        zeros = tf.zeros_initializer()
        return kernel, tf.compat.v1.get_variable("bias", shape[-1:], dtype, initializer=zeros)


def add_bias(product, bias, shape):
    """Returns a matrix product, reshaped, plus a bias.

    Without the reshape in between, TensorFlow computes product and sum as one operation. In
    bfloat16 on a CPU with AMX it takes 1.1 to 2.3 times as long, elsewhere as long as both.

    Args:
      product: `[rows, units]`, the result of `tf.matmul`.
      bias: `[units]`.
      shape: `[..., units]`, at least three dimensions, of as many values as `product`; -1 is
        inferred.
    """
    return tf.nn.bias_add(tf.reshape(product, shape), bias)
