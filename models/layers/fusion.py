"""Functions that XLA compiles to one kernel on a CPU.

TensorFlow runs one operation after the other, and each reads and writes memory; XLA computes a
chain of element-wise operations in one pass. Layers use it for such chains only: for matrix
products and convolutions the libraries of TensorFlow are faster.
"""

from __future__ import annotations

import functools

import tensorflow as tf

from models.layers import device

# tf.function traces again in each graph, by another name, which XLA compiles again.
_GRAPH = tf.Graph()


def fuse(function, *tensors, **settings):
    """Returns `function(*tensors, **settings)`, as one kernel on a device that fuses.

    So is its gradient, which computes what it needs of `function` again, from `tensors`: they are
    all that is kept for it.

    Args:
      function: see `compiled`; returns a tensor.
      *tensors: float32 or bfloat16 tensors get gradients, others do not.
      **settings: see `compiled`.
    """
    if not device.current().fuses:
        return function(*tensors, **settings)

    @tf.custom_gradient
    def run(*tensors):
        def gradient(upstream):
            found = iter(_compiled_gradients(function, **settings)(upstream, *tensors))
            return [next(found) if _is_floating(tensor) else None for tensor in tensors]

        return compiled(function, **settings)(*tensors), gradient

    return run(*tensors)


@functools.cache
def compiled(function, **settings):
    """Returns a function of tensors, compiled by XLA; without a gradient.

    XLA compiles it once for each combination of shapes, in some 30 milliseconds, for all layers.

    Args:
      function: a function that is defined once, in a module; without variables and random numbers.
      **settings: keyword arguments of `function`, hashable.
    """
    settled = functools.partial(function, **settings)
    jitted = tf.function(settled, jit_compile=True, autograph=False)

    def run(*tensors):
        tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
        with _GRAPH.as_default():
            concrete = jitted.get_concrete_function(*specs)
        # jitted(*tensors) would hide the result from the context of a v1 while loop.
        results = concrete(*tensors)
        # Grappler, which does not see the shapes of the results, would write warnings.
        return tf.nest.map_structure(lambda result: tf.ensure_shape(result, result.shape), results)

    return run


@functools.cache
def _compiled_gradients(function, **settings):
    def gradients(upstream, *tensors):
        floating = [tensor for tensor in tensors if _is_floating(tensor)]
        return tf.gradients(function(*tensors, **settings), floating, upstream)

    return compiled(gradients)


def _is_floating(tensor):
    return tensor.dtype.is_floating
