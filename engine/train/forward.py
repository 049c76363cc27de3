"""The inference function as both wrappers run it: in the precision asked for, partly frozen."""

from __future__ import annotations

import contextlib
import re

import tensorflow as tf

from common.errors import UsageError
from engine.train import gradient_overrides
from models.layers import device, dropout


def infer(model, features, params, training):
    """Returns `model.inference(features, params, training)`, outputs of bfloat16 as float32.

    With `params["precision"]` of bfloat16 the layers see variables cast to bfloat16, while the
    variables themselves, their gradients and their updates stay float32 (`bfloat16_scope`).

    Variables that do not match the regular expression `params["trainable"]` are no trainable
    variables afterwards: they get no gradient, no slots, no decay and no average.

    Raises:
      UsageError: no variable matches.
    """
    with contextlib.ExitStack() as stack:
        if params.get("precision") == "bfloat16":
            stack.enter_context(tf.compat.v1.tpu.bfloat16_scope())
        if training:
            stack.enter_context(gradient_overrides.override_gradients(params))
        stack.enter_context(device.scope(params))
        stack.enter_context(dropout.seeded(features))
        outputs = model.inference(features, params, training)
    _freeze(params["trainable"])
    return tf.nest.map_structure(_as_float32, outputs)


def _freeze(pattern):
    variables = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    kept = [variable for variable in variables if re.fullmatch(pattern, variable.op.name)]
    if not kept:
        raise UsageError(
            f"trainable={pattern} matches no variable; the last of the model is "
            f"{variables[-1].op.name if variables else 'none'}"
        )
    variables[:] = kept


def _as_float32(tensor):
    return tf.cast(tensor, tf.float32) if tensor.dtype == tf.bfloat16 else tensor
