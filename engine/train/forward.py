"""Runs the inference function of a model with mixed precision and frozen variables."""

from __future__ import annotations

import contextlib
import re

import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import ema
from engine.train import gradient_overrides, tpu_embeddings
from models.layers import device, dropout, embedding_table
from models.model import ModelError


def infer(model, features, params, training, is_portable=False):
    """Returns `model.inference(features, params, training)`, with bfloat16 outputs as float32.

    Mixed precision: with `params["precision"]` of bfloat16, layers compute in bfloat16, while
    variables, gradients and updates stay float32 (`bfloat16_scope`).

    Freezing: variables that do not match the regular expression `params["trainable"]` are removed
    from the trainable variables, so they get no gradients, optimizer slots, weight decay or EMA.

    Args:
      model: a `models.model.Model`.
      features: tensors `[batch, ...]` of the per-replica batch. On a TPU they include activations
        of TPU embeddings.
      params: all hyperparameters.
      training: True for a training step.
      is_portable: True for graphs of a SavedModel, and of the predictions that equal its own: they
        have no kernels of `models.layers.fusion`.

    Raises:
      UsageError: no variable matches `params["trainable"]`.
    """
    with contextlib.ExitStack() as stack:
        if params.get("precision") == "bfloat16":
            stack.enter_context(tf.compat.v1.tpu.bfloat16_scope())
        if training:
            stack.enter_context(gradient_overrides.override_gradients(params))
        stack.enter_context(device.scope(params, fuses=not is_portable))
        stack.enter_context(dropout.seeded(features))
        features, activations = tpu_embeddings.split_activations(features)
        stack.enter_context(embedding_table.activations_scope(activations))
        outputs = model.inference(features, params, training)
    _freeze(params["trainable"])
    return tf.nest.map_structure(_as_float32, outputs)


def _freeze(pattern):
    variables = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    # `tpu_embeddings.check` does not allow to freeze TPU embeddings.
    dummies = tpu_embeddings.dummy_names()
    kept = [
        variable
        for variable in variables
        if re.fullmatch(pattern, ema.saved_name(variable)) or variable.op.name in dummies
    ]
    if not variables:
        raise ModelError("inference: the model has no trainable variable")
    if len(kept) == len(dummies):
        raise UsageError(
            f"trainable={pattern} matches no variable. The last variable of the model is "
            f"{variables[-1].op.name}"
        )
    variables[:] = kept


def _as_float32(tensor):
    return tf.cast(tensor, tf.float32) if tensor.dtype == tf.bfloat16 else tensor
