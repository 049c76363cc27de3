"""Runs the functions of a model that build its network, with mixed precision and frozen variables.

Training and evaluation call `infer`, prediction and export `decode`.
"""

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
    """Returns `model.inference(features, params, training)`; see `run`."""
    return run(model.inference, features, params, training, is_portable)


def decode(model, features, params, is_portable=False):
    """Returns what a model predicts from: `model.decode(features, params)`, else its inference."""
    if model.decode is None:
        return infer(model, features, params, False, is_portable)

    def network(features, params, training):
        del training
        return model.decode(features, params)

    return run(network, features, params, False, is_portable)


def train_features(model, features, labels):
    """Returns the features of training: with the labels in `model.train_inputs`, by their names.

    Raises:
      ModelError: the data set has no such label, or a feature of the same name.
    """
    named = labels if isinstance(labels, dict) else {"label": labels}
    for name in model.train_inputs:
        if name not in named:
            raise ModelError(
                f"train_inputs: '{name}' is not a label of the data set, which has "
                f"{', '.join(named)}"
            )
        if name in features:
            raise ModelError(
                f"train_inputs: '{name}' is a label and a feature of the data set. Rename one"
            )
    return {**features, **{name: named[name] for name in model.train_inputs}}


def run(function, features, params, training, is_portable=False):
    """Returns `function(features, params, training)`, with bfloat16 outputs as float32.

    Mixed precision: with `params["precision"]` of bfloat16, layers compute in bfloat16, while
    variables, gradients and updates stay float32 (`bfloat16_scope`).

    Freezing: variables that do not match the regular expression `params["trainable"]` are removed
    from the trainable variables, so they get no gradients, optimizer slots, weight decay or EMA.

    Args:
      function: builds a network, such as `Model.inference`.
      features: tensors `[batch, ...]` of the per-replica batch. On a TPU they include activations
        of TPU embeddings.
      params: all hyperparameters.
      training: True for a training step.
      is_portable: True for graphs of a SavedModel, and of the predictions that equal its own: they
        have no kernels of `models.layers.fusion`.

    Raises:
      UsageError: no variable of training matches `params["trainable"]`.
    """
    with contextlib.ExitStack() as stack:
        if params.get("precision") == "bfloat16":
            stack.enter_context(tf.compat.v1.tpu.bfloat16_scope())
        if training:
            stack.enter_context(gradient_overrides.override_gradients(params))
        stack.enter_context(device.scope(params, fuses=not is_portable))
        stack.enter_context(dropout.seeded(features))
        features, activations = tpu_embeddings.split_activations(features)
        stack.enter_context(embedding_table.scope(activations=activations))
        outputs = function(features, params, training)
    _freeze(params["trainable"], training)
    return tf.nest.map_structure(_as_float32, outputs)


def _freeze(pattern, training):
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
    # Predictions without the head, such as embeddings, may have frozen variables only.
    if training and len(kept) == len(dummies):
        raise UsageError(
            f"trainable={pattern} matches no variable. The last variable of the model is "
            f"{variables[-1].op.name}"
        )
    variables[:] = kept


def _as_float32(tensor):
    return tf.cast(tensor, tf.float32) if tensor.dtype == tf.bfloat16 else tensor
