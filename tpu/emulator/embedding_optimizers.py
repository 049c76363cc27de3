"""Optimizers of TPU embeddings, with NumPy: updates of the rows whose ids are in a batch.

Formulas are those of `optimization_parameters.proto`. Slots are in the order of the operations that
load them: adagrad (accumulators), adam (momenta, velocities), ftrl (accumulators, linears).
"""

from __future__ import annotations

import numpy as np


def update(table, arrays, rows, gradients, learning_rate):
    """Updates rows of a table and of its slots in place.

    Args:
      table: an `embedding_config.Table`.
      arrays: [the table, slot, ...], each [rows, width] float32.
      rows: [n] int64, without duplicates.
      gradients: [n, width] float32.
      learning_rate: float32.
    """
    parameters = table.parameters
    is_dense = table.optimizer == "adam" and parameters.adam.use_non_lazy_adam
    if is_dense:
        every = np.zeros_like(arrays[0])
        every[rows] = gradients
        rows, gradients = slice(None), every
    gradients = _clip(gradients, parameters.gradient_clipping_limits)
    old = [array[rows] for array in arrays]
    new = RULES[table.optimizer](parameters, old, gradients, learning_rate)
    for array, values in zip(arrays, new):
        array[rows] = values
    arrays[0][rows] = _clip(arrays[0][rows], parameters.clipping_limits)


def _clip(values, limits):
    lower = limits.lower.value if limits.HasField("lower") else -np.inf
    upper = limits.upper.value if limits.HasField("upper") else np.inf
    return np.clip(values, np.float32(lower), np.float32(upper))


def _sgd(parameters, arrays, gradient, learning_rate):
    (weights,) = arrays
    return [weights - learning_rate * gradient]


def _adagrad(parameters, arrays, gradient, learning_rate):
    weights, accumulator = arrays
    accumulator = accumulator + gradient**2
    # Rows with a zero accumulator have a zero gradient.
    scale = np.where(accumulator > 0, accumulator, 1)
    return [weights - learning_rate * gradient / np.sqrt(scale), accumulator]


def _adam(parameters, arrays, gradient, learning_rate):
    """Adam without bias correction: the TPU has none; programs put it into the learning rate."""
    weights, momentum, velocity = arrays
    adam = parameters.adam
    beta1, beta2, epsilon = np.float32([adam.beta1, adam.beta2, adam.epsilon])
    momentum = beta1 * momentum + (1 - beta1) * gradient
    velocity = beta2 * velocity + (1 - beta2) * gradient**2
    if adam.use_sum_inside_sqrt:
        scale = np.sqrt(velocity + epsilon**2)
    else:
        scale = np.sqrt(velocity) + epsilon
    return [weights - learning_rate * momentum / scale, momentum, velocity]


def _ftrl(parameters, arrays, gradient, learning_rate):
    weights, accumulator, linear = arrays
    ftrl = parameters.ftrl
    l1, l2, beta = np.float32([ftrl.l1, ftrl.l2, ftrl.beta])
    # With multiply_linear_by_lr, the slot is linear * learning_rate.
    rate = np.float32(1) if ftrl.multiply_linear_by_lr else learning_rate
    factor = learning_rate if ftrl.multiply_linear_by_lr else np.float32(1)
    power = -np.float32(ftrl.lr_power)
    old, accumulator = accumulator**power, accumulator + gradient**2
    new = accumulator**power
    linear = linear + factor * gradient - (new - old) / rate * weights
    quadratic = (new + beta) / rate + 2 * l2 * factor
    shrunk = np.clip(linear, -l1 * factor, l1 * factor) - linear
    # A row that never had a gradient may have a zero accumulator.
    weights = np.where(quadratic > 0, shrunk / np.where(quadratic > 0, quadratic, 1), 0)
    return [weights, accumulator, linear]


RULES = {"stochastic_gradient_descent": _sgd, "adagrad": _adagrad, "adam": _adam, "ftrl": _ftrl}
