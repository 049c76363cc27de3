"""Whether input_fn returns params['batch_size'] examples.

The shapes of a batch alone do not tell: images may be flattened or transposed, and other tensors
may have no batch dimension. Called with twice the batch size, input_fn shows which sizes follow it.
"""

from __future__ import annotations

from unittest import mock

import tensorflow as tf
from tensorflow_estimator.python.estimator.tpu import tpu_context

from tpu.check.graph_builder import CheckedMode
from tpu.findings import ERROR, WARNING


def is_suspicious(infeed, batch_size: int) -> bool:
    """Returns True if a tensor of the infeed does not begin with the per-core batch size."""
    # TPUEstimator's own stopping signals are bool.
    ranked = [tensor for tensor in infeed if tensor.shape.rank and tensor.dtype != tf.bool]
    sizes = [tensor.shape.as_list()[0] for tensor in ranked]
    return any(size is not None and size != batch_size for size in sizes)


def find_mistake(checked: CheckedMode):
    """Returns (level, message) if input_fn batches by another size, else None.

    Raises:
      Any exception of input_fn.
    """
    with checked.context() as context:
        asked = context.batch_size_for_input_fn
    with checked.on_slice():
        shapes, doubled = _shapes(checked, asked), _shapes(checked, 2 * asked)
    if len(shapes) != len(doubled):
        return None
    followers = [
        (shape, [a for a, b in zip(shape, other) if a != b])
        for shape, other in zip(shapes, doubled)
        if len(shape) == len(other) and shape != other
    ]
    if not followers:
        return _ignored(shapes, asked)
    sizes = {size for _, differing in followers for size in differing}
    if asked in sizes or None in sizes or len(sizes) > 1:
        return None
    (size,) = sizes
    is_flat = size > asked and all(len(shape) == 1 for shape, _ in followers)
    if is_flat or (size > asked and len(followers) == 1):  # flattened images, for example
        return None
    message = (
        f"input_fn returns batches of {size} examples, but params['batch_size'] is {asked}. Batch "
        "by params['batch_size'], which is already the size of this call"
    )
    return WARNING, message


def _ignored(shapes, asked):
    """Returns the mistake of an input_fn whose shapes do not follow params['batch_size']."""
    ranked = [shape for shape in shapes if shape]
    # The batch is the first dimension, or the last of transposed images.
    sizes = {shape[0] for shape in ranked} | {shape[-1] for shape in ranked if len(shape) > 2}
    if not ranked or sizes & {asked, None}:
        return None
    is_flat = all(len(shape) == 1 and shape[0] % asked == 0 for shape in ranked)
    message = (
        f"input_fn returns {tuple(ranked[0])} whatever params['batch_size'] is, which is {asked}. "
        "Batch by params['batch_size']"
    )
    return (WARNING if is_flat else ERROR), message


def _shapes(checked, batch_size):
    """Returns the shapes of a batch, a list of lists, if params['batch_size'] is `batch_size`."""
    size = property(lambda self: batch_size)
    context = tpu_context._InternalTPUContext
    patched = mock.patch.object(context, "batch_size_for_input_fn", size)
    with tf.Graph().as_default(), patched:
        batch = checked.call_input_fn()
        if isinstance(batch, (tf.data.Dataset, tf.compat.v1.data.Dataset)):
            batch = tf.compat.v1.data.get_output_shapes(batch)
        shapes = [tf.TensorShape(getattr(part, "shape", part)) for part in tf.nest.flatten(batch)]
        return [shape.as_list() for shape in shapes if shape.rank is not None]
