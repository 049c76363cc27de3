"""Optimizers by name, and what a step does with gradients."""

from __future__ import annotations

import tensorflow as tf

from models.registry import did_you_mean
from training import ema
from training.decoupled import AdamWOptimizer, LAMBOptimizer, LARSOptimizer, is_decayed
from training.program import UsageError


def default_params():
    """Returns the hyperparameters of this module."""
    return {
        "optimizer": "adam",  # momentum, adam, adamw, rmsprop, lars or lamb
        "momentum": 0.9,  # momentum, rmsprop, lars
        "nesterov": False,  # momentum
        "beta1": 0.9,  # adam, adamw, lamb
        "beta2": 0.999,  # adam, adamw, lamb
        "rmsprop_decay": 0.9,  # rmsprop: of the mean square
        "epsilon": 1e-7,  # adam, adamw, rmsprop, lamb: added to the denominator
        "trust_coefficient": 1e-3,  # lars: step of a layer, as a share of its norm
        "weight_decay": 0.0,  # of kernels, not of biases and norms; momentum, adam, rmsprop: L2
        "clip_norm": 0.0,  # global norm to which gradients are clipped; 0: not
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


def create(params, learning_rate):
    """Returns `params["optimizer"]`; `learning_rate` is a float or a scalar tensor."""
    optimizer = _OPTIMIZERS[params["optimizer"]](params, learning_rate)
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
        loss += params["weight_decay"] * tf.add_n(decayed)
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
    return ema.update_after(step, params)


class ClippedOptimizer(tf.compat.v1.train.Optimizer):
    """Clips the global norm of the gradients that another optimizer is about to apply.

    Inside a CrossShardOptimizer these are the sums over all cores, so that a step is the same on
    one device and on many.
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
        clipped, _ = tf.clip_by_global_norm(gradients, self._clip_norm)
        return self._optimizer.apply_gradients(list(zip(clipped, variables)), global_step, name)


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
