"""The inference function in float32, or in a TPU's bfloat16 with float32 variables."""

from __future__ import annotations

import tensorflow as tf


def inference(model, features, params, training):
    """Returns `model.inference(features, params, training)`, outputs of bfloat16 as float32.

    With `params["precision"]` of bfloat16 the layers see variables cast to bfloat16, while the
    variables themselves, their gradients and their updates stay float32 (`bfloat16_scope`).
    """
    if params.get("precision") != "bfloat16":
        return model.inference(features, params, training)
    with tf.compat.v1.tpu.bfloat16_scope():
        outputs = model.inference(features, params, training)
    return tf.nest.map_structure(_as_float32, outputs)


def _as_float32(tensor):
    return tf.cast(tensor, tf.float32) if tensor.dtype == tf.bfloat16 else tensor
