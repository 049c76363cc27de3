"""Optimizers by name, and what a step does with gradients."""

from __future__ import annotations

import re

import tensorflow as tf

from common import strict_flags
from common.errors import UsageError
from common.messages import did_you_mean
from common.params import Strings
from engine.checkpoints import ema
from engine.train.adamw_lars_lamb import AdamWOptimizer, LAMBOptimizer, LARSOptimizer, is_decayed
from models.layers.device import sum_over_strategy


def default_params():
    """Returns the hyperparameters of this module."""
    return {
        "optimizer": "adam",  # momentum, adam, adamw, rmsprop, lars or lamb
        "momentum": 0.9,  # momentum, rmsprop, lars
        "nesterov": False,  # momentum
        "beta1": 0.9,  # adam, adamw, lamb
        "beta2": 0.999,  # adam, adamw, lamb
        "rmsprop_decay": 0.9,  # rmsprop: of the mean square
        "epsilon": 1e-7,  # adam, adamw, lamb: added to the denominator; rmsprop: under its root
        "trust_coefficient": 1e-3,  # lars: step of a layer, as a share of its norm
        "weight_decay": 0.0,  # of kernels, not of biases and norms; momentum, adam, rmsprop: L2
        "clip_norm": 0.0,  # global norm to which gradients are clipped; 0: not
        "trainable": ".*",  # regular expression of what is trained; other variables are frozen
        # REGEX:FACTOR, the first that matches a variable's name, e.g. [logits/.*:10,stage_1/.*:0.1]
        "learning_rate_factors": Strings(),
        "ema_decay": 0.0,  # of the average of the weights that eval and export use; 0: none
    }


def check_params(params):
    """Raises `UsageError` for a value out of range."""
    name = params["optimizer"]
    if name not in _OPTIMIZERS:
        raise UsageError(f"optimizer={name} is unknown.{did_you_mean(name, _OPTIMIZERS)}")
    for key in ("momentum", "beta1", "beta2", "rmsprop_decay", "ema_decay"):
        if not 0 <= params[key] < 1:
            raise UsageError(f"{key}={params[key]} must be in [0, 1)")
    for key in ("weight_decay", "clip_norm"):
        if params[key] < 0:
            raise UsageError(f"{key}={params[key]} must not be below 0")
    for key in ("epsilon", "trust_coefficient"):
        if params[key] <= 0:
            raise UsageError(f"{key}={params[key]} must be above 0")
    _check_pattern("trainable", params["trainable"])
    for pattern, _ in _learning_rate_factors(params):
        _check_pattern("learning_rate_factors", pattern)


def _check_pattern(key, pattern):
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{key}: '{pattern}' is not a regular expression: {error}") from error


def _learning_rate_factors(params):
    """Returns `[(regular expression, factor)]`."""
    factors = []
    for item in params["learning_rate_factors"]:
        pattern, _, text = item.rpartition(":")
        try:
            factor = strict_flags.to_float(text)
        except ValueError:
            factor = 0.0
        if factor <= 0:
            raise UsageError(
                f"learning_rate_factors: '{item}' must be REGEX:FACTOR with a factor above 0, such "
                "as logits/.*:10. To freeze variables, leave them out of 'trainable'"
            )
        factors.append((pattern, factor))
    return factors


def create(params, learning_rate):
    """Returns `params["optimizer"]`; `learning_rate` is a float or a scalar tensor."""
    make = _OPTIMIZERS[params["optimizer"]]
    optimizer = make(params, learning_rate)
    factors = _learning_rate_factors(params)
    if factors:
        groups = [(pattern, make(params, learning_rate * factor)) for pattern, factor in factors]
        optimizer = GroupedOptimizer(groups, optimizer)
    return ClippedOptimizer(optimizer, params["clip_norm"]) if params["clip_norm"] else optimizer


def compute_gradients(optimizer, loss, params):
    """Returns `[(gradient, variable)]` of the scalar `loss`, with L2 where `params` want it.

    The gradients are dense: cores of a TPU sum dense gradients, and an optimizer that took sparse
    ones on a CPU would leave out the decay and the momentum of rows that a batch does not use.
    """
    variables = tf.compat.v1.trainable_variables()
    # As a part of the loss, so that an optimizer that sums gradients over cores scales it too.
    if params["weight_decay"] and params["optimizer"] not in _OWN_WEIGHT_DECAY:
        decayed = [tf.nn.l2_loss(variable) for variable in variables if is_decayed(variable)]
        loss += params["weight_decay"] * tf.add_n(decayed or [0.0])
    return [
        (gradient if gradient is None else tf.convert_to_tensor(gradient), variable)
        for gradient, variable in optimizer.compute_gradients(loss, variables)
    ]


def apply_gradients(optimizer, gradients_and_variables, params):
    """Returns the op that ends a training step.

    It applies the gradients, runs the updates of batch norm, counts the global step and moves the
    average of the weights.
    """
    global_step = tf.compat.v1.train.get_or_create_global_step()
    updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies(updates):
        step = optimizer.apply_gradients(gradients_and_variables, global_step)
    return ema.add_update(step, params)


class ClippedOptimizer(tf.compat.v1.train.Optimizer):
    """Clips the global norm of the gradients that another optimizer is about to apply.

    Inside a CrossShardOptimizer these are the sums over all cores, and under a strategy they are
    summed up here, so that a step is the same on one device and on many.
    """

    def __init__(self, optimizer, clip_norm):
        super().__init__(use_locking=False, name="Clipped")
        self._optimizer = optimizer
        self._clip_norm = clip_norm

    def compute_gradients(self, loss, var_list=None, **kwargs):
        """As the other optimizer does."""
        return self._optimizer.compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Clips, then applies."""
        gradients, variables = zip(*grads_and_vars)
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if replicas > 1:
            gradients = sum_over_strategy(list(gradients))
        clipped, _ = tf.clip_by_global_norm(gradients, self._clip_norm)
        # The other optimizer adds them up over the replicas.
        clipped = [gradient / replicas for gradient in clipped] if replicas > 1 else clipped
        return self._optimizer.apply_gradients(list(zip(clipped, variables)), global_step, name)


class GroupedOptimizer(tf.compat.v1.train.Optimizer):
    """Optimizers of one kind with rates of their own, each for the variables that match first."""

    def __init__(self, groups, optimizer):
        """Takes `[(regular expression, optimizer)]`, and the optimizer of all other variables."""
        super().__init__(use_locking=False, name="Grouped")
        self._groups = groups
        self._optimizer = optimizer

    def compute_gradients(self, loss, var_list=None, **kwargs):
        """As any of the optimizers does."""
        return self._optimizer.compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Lets each optimizer update its variables, then counts the step.

        Raises:
          UsageError: an expression matches no variable that the ones before it have left.
        """
        rest, updates = list(grads_and_vars), []
        for pattern, optimizer in self._groups:
            own = [pair for pair in rest if re.fullmatch(pattern, pair[1].op.name)]
            rest = [pair for pair in rest if not re.fullmatch(pattern, pair[1].op.name)]
            if not own:
                raise UsageError(f"learning_rate_factors: '{pattern}' matches no trained variable")
            updates.append(optimizer.apply_gradients(own))
        if rest:
            updates.append(self._optimizer.apply_gradients(rest))
        with tf.control_dependencies(updates):
            if global_step is None:
                return tf.no_op(name)
            return global_step.assign_add(1, name=name, read_value=False)


def _momentum(params, learning_rate):
    return tf.compat.v1.train.MomentumOptimizer(
        learning_rate, params["momentum"], use_nesterov=params["nesterov"]
    )


def _adam_arguments(params):
    return {name: params[name] for name in ("beta1", "beta2", "epsilon")}


def _adam(params, learning_rate):
    return tf.compat.v1.train.AdamOptimizer(learning_rate, **_adam_arguments(params))


def _adamw(params, learning_rate):
    return AdamWOptimizer(learning_rate, params["weight_decay"], **_adam_arguments(params))


def _lars(params, learning_rate):
    return LARSOptimizer(
        learning_rate, params["momentum"], params["weight_decay"], params["trust_coefficient"]
    )


def _lamb(params, learning_rate):
    return LAMBOptimizer(learning_rate, params["weight_decay"], **_adam_arguments(params))


def _rmsprop(params, learning_rate):
    return tf.compat.v1.train.RMSPropOptimizer(
        learning_rate,
        decay=params["rmsprop_decay"],
        momentum=params["momentum"],
        epsilon=params["epsilon"],
    )


_OPTIMIZERS = {
    "momentum": _momentum,
    "adam": _adam,
    "adamw": _adamw,
    "rmsprop": _rmsprop,
    "lars": _lars,
    "lamb": _lamb,
}
_OWN_WEIGHT_DECAY = ("adamw", "lars", "lamb")
