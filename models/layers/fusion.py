"""Functions that XLA compiles to one kernel, for training on a CPU.

TensorFlow runs one operation after the other, and each reads and writes memory; XLA computes a
chain of element-wise operations in one pass. Layers use it for such chains only: for matrix
products and convolutions the libraries of TensorFlow are faster.
"""

from __future__ import annotations

import tensorflow as tf

from models.layers import device


def fuse(function, *tensors):
    """Returns `function(*tensors)`, on a device that fuses as one kernel, and its gradient too.

    The gradient computes what it needs of `function` again, from `tensors`, which are all that is
    kept for it. XLA compiles once for each combination of shapes, in some 30 milliseconds.

    Args:
      function: function of tensors that returns a tensor; without variables and random numbers.
      *tensors: float32 or bfloat16 tensors get gradients, others do not.
    """
    if not device.current().fuses:
        return function(*tensors)

    @tf.custom_gradient
    def run(*tensors):
        floating = [i for i, tensor in enumerate(tensors) if tensor.dtype.is_floating]

        def gradients(upstream, *tensors):
            y = function(*tensors)
            return tf.gradients(y, [tensors[i] for i in floating], upstream)

        def gradient(upstream):
            found = dict(zip(floating, compiled(gradients)(upstream, *tensors)))
            return [found.get(i) for i in range(len(tensors))]

        return compiled(function)(*tensors), gradient

    return run(*tensors)


def compiled(function):
    """Returns `function` of tensors, compiled by XLA; without a gradient."""
    jitted = tf.function(function, jit_compile=True, autograph=False)

    def run(*tensors):
        tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
        # jitted(*tensors) would hide the result from the context of a v1 while loop.
        results = jitted.get_concrete_function(*specs)(*tensors)
        # Grappler, which does not see the shapes of the results, would write warnings.
        return tf.nest.map_structure(lambda result: tf.ensure_shape(result, result.shape), results)

    return run
