"""Builds the training step of a model with a `train_step`, such as a GAN: alternating updates."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from common.constants import DROPOUT_SEED
from common.errors import UsageError
from common.messages import did_you_mean
from engine.checkpoints import ema
from engine.train import forward, loss_reduction, optimizers, tpu_embeddings
from models.layers import device, dropout
from models.model import ModelError, TrainStep


def check(model, params, accumulate_steps, use_tpu) -> None:
    """Raises `UsageError` for a setting that only the engine's step supports.

    Args:
      model: a `models.model.Model`.
      params: all hyperparameters.
      accumulate_steps: number of micro-batches for gradient accumulation.
      use_tpu: True on a TPU.
    """
    if model.train_step is None:
        return
    set_to = {
        "--accumulate_steps": accumulate_steps if accumulate_steps > 1 else None,
        "lazy_embeddings": params["lazy_embeddings"] or None,
        "learning_rate_factors": params["learning_rate_factors"] or None,
        "layer_decay": params["layer_decay"] if params["layer_decay"] != 1 else None,
    }
    if use_tpu and tpu_embeddings.find_tables(model, params):
        set_to["tpu_embedding_rows"] = params["tpu_embedding_rows"]
    for name, value in set_to.items():
        if value is not None:
            raise UsageError(
                f"{name}={value} is not supported by the model {model.name}, which has a "
                "train_step. Leave it out"
            )


def build(model, features, labels, params, learning_rate) -> TrainStep:
    """Returns what `model.train_step` returns.

    Args:
      model: a `models.model.Model` with a `train_step`.
      features: tensors `[batch, ...]` with static shapes, the per-replica batch.
      labels: like `features`.
      params: all hyperparameters, see `check`; on a TPU also the params that TPUEstimator adds.
      learning_rate: float32 scalar.

    Raises:
      ModelError: `model.train_step` or its use of the tools is wrong.
    """
    tools = _Tools(model, features, labels, params, learning_rate)
    inputs = forward.train_features(model, features, labels)
    with device.scope(params):
        step = model.train_step(inputs, labels, params, tools)
    if not isinstance(step, TrainStep):
        raise ModelError(f"train_step: returned {step!r}. Return tools.finish(outputs)")
    return step


@dataclasses.dataclass(frozen=True)
class _Optimizer:
    """An optimizer and the scope of its variables; `params` with its own hyperparameters."""

    name: str
    optimizer: tf.compat.v1.train.Optimizer
    params: dict[str, Any]


class _Tools:
    """Implements `models.model.TrainTools`, which documents the methods."""

    def __init__(self, model, features, labels, params, learning_rate):
        self.learning_rate = learning_rate
        self._model, self._params = model, params
        self._batch = features, labels
        self._seeds = (features[DROPOUT_SEED][0], 0) if DROPOUT_SEED in features else None
        self._names = set()
        self._updates = []  # ops, in their order
        self._slots = set()  # names of the variables of optimizers
        self._trained = set()  # names of variables
        self._losses, self._means = {}, {}

    def optimizer(self, name, learning_rate=None, **params):
        """Returns an optimizer for `update`."""
        if name in self._names:
            raise ModelError(f"train_step: there are two optimizers '{name}'. Rename one")
        valid = optimizers.default_params()
        for key in params.keys() - valid.keys():
            hint = did_you_mean(key, valid)
            raise ModelError(f"train_step: the optimizer '{name}' has no '{key}'.{hint}")
        self._names.add(name)
        params = {**self._params, **params}
        optimizers.check_params(params)
        rate = self.learning_rate if learning_rate is None else learning_rate
        optimizer = optimizers.all_reduced(optimizers.create(params, rate), params)
        return _Optimizer(name, optimizer, params)

    def infer(self, features, function=None):
        """Returns the outputs of a network after the updates so far."""
        if not isinstance(features, dict):
            raise ModelError(f"train_step: tools.infer(features, function) got features {features}")
        function = function or self._model.inference

        def network(features, params, training):
            outputs = function(features, params, training)
            self._seeds = dropout.next_seeds()
            return outputs

        features = {name: value for name, value in features.items() if name != DROPOUT_SEED}
        scope = tf.compat.v1.variable_scope(
            tf.compat.v1.get_variable_scope(), reuse=tf.compat.v1.AUTO_REUSE
        )
        with tf.control_dependencies(self._updates), scope, dropout.replayed(self._seeds):
            return forward.run(network, features, self._params, training=True)

    def update(self, optimizer, terms):
        """Updates variables with the gradients of a loss."""
        if not isinstance(optimizer, _Optimizer):
            raise ModelError(
                f"train_step: tools.update(optimizer, terms) got {optimizer!r}. Make the optimizer "
                "by tools.optimizer(name)"
            )
        name, params = optimizer.name, optimizer.params
        with tf.control_dependencies(self._updates), tf.name_scope(name):
            try:
                means = loss_reduction.means(terms, loss_reduction.denominators(terms, params))
                losses = loss_reduction.by_variables(terms, means)
                pairs = optimizers.compute_gradients(optimizer.optimizer, losses, params)
            except ModelError as error:
                problem = str(error).removeprefix("losses: ")
                raise ModelError(f"train_step: the update by '{name}': {problem}") from error
        pairs = [pair for pair in pairs if pair[0] is not None]
        before = _names(tf.compat.v1.global_variables())
        updates = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.UPDATE_OPS)
        # The absolute scope: variables such as beta1 have the same names whatever is built before.
        with tf.control_dependencies([*self._updates, *updates]), tf.name_scope(f"{name}/"):
            self._updates.append(optimizer.optimizer.apply_gradients(pairs))
        del updates[:]
        self._slots |= _names(tf.compat.v1.global_variables()) - before
        self._trained |= _names(variable for _, variable in pairs)
        self._means.update(means)
        self._losses[(name, *terms)] = loss_reduction.add(losses.values())

    def finish(self, outputs):
        """Returns the step."""
        if not self._updates:
            raise ModelError("train_step: no tools.update before tools.finish")
        model, params = self._model, self._params
        terms = model.losses(*self._batch, outputs, params)
        loss_reduction.check(terms)
        variables = tf.compat.v1.global_variables()
        untrained = _names(tf.compat.v1.trainable_variables()) - self._trained
        return TrainStep(
            op=optimizers.count_step(params, self._updates),
            loss=loss_reduction.add(self._losses.values()),
            loss_means=self._means,
            loss_names=tuple(terms),
            learning_rate=self.learning_rate,
            eval_outputs=model.eval_outputs(*self._batch, outputs, params),
            model_variables=[v for v in variables if ema.saved_name(v) not in self._slots],
            without_gradient=tuple(sorted(untrained)),
        )


def _names(variables):
    return {ema.saved_name(variable) for variable in variables}
