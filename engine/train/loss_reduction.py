"""The training loss: a sum of terms, each a weighted mean over the global batch."""

from __future__ import annotations

import re

import tensorflow as tf

from models.layers import device
from models.model import Loss, ModelError


def check(terms, has_static_batch=True):
    """Raises `ModelError` unless the result of `Model.losses` is `{name: Loss}` as it says.

    Args:
      terms: the result.
      has_static_batch: False to accept an unknown shape, as an evaluation may have.
    """
    if not isinstance(terms, dict) or not terms:
        raise ModelError(f"losses: returned {terms!r}, not a dict of a Loss for each name")
    for name, term in terms.items():
        if not isinstance(term, Loss):
            raise ModelError(
                f"losses: '{name}' is a {type(term).__name__}. Return a models.model.Loss of one "
                "number per example"
            )
        for part, tensor in (("values", term.values), ("weights", term.weights)):
            if tensor is not None:
                _check_tensor(f"losses: '{name}' has {part}", tensor, has_static_batch)
        try:
            re.compile(term.variables)
        except re.error as error:
            raise ModelError(
                f"losses: '{name}' has variables={term.variables!r}, which is not a regular "
                f"expression: {error}"
            ) from error
        if term.weights is not None and term.weights.dtype != term.values.dtype:
            raise ModelError(
                f"losses: '{name}' has weights of {term.weights.dtype.name}, but values of "
                f"{term.values.dtype.name}. Use tf.cast"
            )


def _check_tensor(what, tensor, has_static_batch):
    if not tf.is_tensor(tensor):
        raise ModelError(f"{what} of type {type(tensor).__name__}, not a tensor [batch]")
    if tensor.shape.rank not in ((1,) if has_static_batch else (1, None)):
        raise ModelError(
            f"{what} of shape {tensor.shape}, not [batch]. Reduce them to one number per example"
        )
    if has_static_batch and tensor.shape.as_list()[0] is None:
        raise ModelError(
            f"{what} of an unknown batch size, shape {tensor.shape}. Batch with drop_remainder in "
            "the input_fn, and give examples that do not count a weight of 0 instead of removing "
            "them (tf.boolean_mask, tf.where)"
        )
    if not tensor.dtype.is_floating:
        raise ModelError(f"{what} of {tensor.dtype.name}, not float32. Use tf.cast")


def denominators(terms, params):
    """Returns `{name: scalar}`: each replica divides its sum of weighted losses by this number.

    It is the sum of the weights of a replica, averaged over replicas by an all-reduce. So the mean
    over replicas of the losses, and of the gradients, is that of the global batch, even if the
    weights, such as numbers of tokens, differ between replicas.

    Args:
      terms: `{name: models.model.Loss}` of the per-replica batch.
      params: params of the model_fn.

    Raises:
      ModelError: values or weights are not float32 `[batch]` with a static batch.
    """
    check(terms)

    def denominator(term):
        if term.weights is None:
            return float(term.values.shape[0])
        weight = tf.reduce_sum(term.weights)
        replica = device.from_params(params)
        return replica.cross_replica_sum(weight) / replica.num_replicas

    return {name: denominator(term) for name, term in terms.items()}


def means(terms, divisors):
    """Returns `{name: float32 scalar}`: `sum(values * weights) / divisor`, 0 for a divisor of 0."""

    def mean(term, divisor):
        if term.weights is None:
            return tf.reduce_sum(term.values) / divisor
        # The weights are divided, not the sum: so XLA knows the gradient of the values before their
        # sum, and computes both in one pass.
        shares = tf.math.divide_no_nan(term.weights, divisor)
        return tf.reduce_sum(term.values * shares)

    return {name: mean(term, divisors[name]) for name, term in terms.items()}


def by_variables(terms, means):
    """Returns `{regular expression: float32 scalar}`, the losses of the variables that match.

    A loss is `sum(mean * scale)` over the terms with these `Loss.variables`.
    """
    scaled = {}
    for name, mean in means.items():
        term = terms[name]
        scaled.setdefault(term.variables, []).append(mean if term.scale == 1 else mean * term.scale)
    return {variables: add(losses) for variables, losses in scaled.items()}


def add(losses):
    """Returns the sum of scalars, of which there may be one."""
    losses = list(losses)
    return losses[0] if len(losses) == 1 else tf.add_n(losses)
