"""The contract between a model and the two wrappers."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

# A dict of tensors; every tensor's first dimension is the batch.
Tensors = dict


class ModelError(ValueError):
    """A model that cannot be found, or hyperparameters that it cannot be built with."""


def check_fractions(params: dict[str, Any], *names: str) -> None:
    """Raises `ModelError` unless these hyperparameters lie in [0, 1)."""
    for name in names:
        if not 0 <= params[name] < 1:
            raise ModelError(f"{name}={params[name]} must be in [0, 1)")


def _accept(params: dict[str, Any]) -> None:
    del params


def _all_outputs(labels: Any, outputs: Tensors) -> Tensors:
    del labels
    return outputs


@dataclasses.dataclass(frozen=True)
class Model:
    """A model as the wrappers see it: a name and functions.

    The batch dimension below is whatever the caller feeds: the global batch under an Estimator on
    one device, the per-core batch under a TPUEstimator on a TPU.

    Attributes:
      name: what `--model` calls it.
      default_params: `() -> dict`. Every hyperparameter with its default; the default's type is the
        type that an override must have. `num_classes`, if present, is replaced by the data set's,
        and `precision` ("float32" or "bfloat16", what the layers compute in) by `--precision`; a
        model without it computes in float32 only.
      inference: `(features, params, training) -> outputs`. The shared inference function: a pure
        graph function from a dict of statically shaped feature tensors to a dict of output tensors.
        Variables come from `tf.compat.v1.get_variable` or tf1 layers, so that names are the same
        everywhere; batch-norm updates land in `UPDATE_OPS`.
      loss: `(labels, outputs, params) -> float32 [batch]`, one loss an example, so that examples
        can be weighted.
      metrics: `(labels, outputs, weights) -> {name: (value, update_op)}`, streaming metrics over
        the examples whose float32 `[batch]` weight is not 0; `weights=None` counts all.
      predictions: `(outputs) -> Tensors`, what `predict` yields and the SavedModel returns.
      check_params: `(params) -> None`, raises `ModelError` for values that no graph can be built
        with. Called before TensorFlow builds anything.
      features: what the data set must hold for training and evaluation; () checks nothing.
      loss_weights: `(labels) -> float32 [batch]`, what each example's loss weighs in the mean: the
        tokens of a row of text, say. The mean is that of the global batch, however they are spread
        over the cores. None: all the same.
      eval_outputs: `(labels, outputs) -> Tensors`, what of the outputs `metrics` take, float32
        `[batch, ...]`; a TPU sends these to its host, so large tensors are best summed up here.
    """

    name: str
    default_params: Callable[[], dict[str, Any]]
    inference: Callable[[Tensors, dict[str, Any], bool], Tensors]
    loss: Callable[[Any, Tensors, dict[str, Any]], Any]
    metrics: Callable[[Any, Tensors, Any], dict[str, tuple]]
    predictions: Callable[[Tensors], Tensors]
    check_params: Callable[[dict[str, Any]], None] = _accept
    features: tuple[str, ...] = ()
    loss_weights: Callable[[Any], Any] | None = None
    eval_outputs: Callable[[Any, Tensors], Tensors] = _all_outputs
