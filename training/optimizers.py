"""Optimizers by name, and the training step that both wrappers run."""

from __future__ import annotations

import tensorflow as tf

from models.registry import did_you_mean
from training import ema
from training.program import UsageError


def default_params():
    """Returns the hyperparameters of `create` and `minimize`."""
    return {
        "optimizer": "adam",  # momentum, adam, adamw or rmsprop
        "momentum": 0.9,  # momentum, rmsprop
        "nesterov": False,  # momentum
        "beta1": 0.9,  # adam, adamw
        "beta2": 0.999,  # adam, adamw
        "rmsprop_decay": 0.9,  # rmsprop: of the mean square
        "epsilon": 1e-7,  # adam, adamw, rmsprop: added to the denominator
        "weight_decay": 0.0,  # of kernels, not of biases and norms; adamw: decoupled, others: L2
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
    if params["epsilon"] <= 0:
        raise UsageError(f"epsilon={params['epsilon']} must be above 0")


def create(params, learning_rate):
    """Returns `params["optimizer"]`; `learning_rate` is a float or a scalar tensor."""
    return _OPTIMIZERS[params["optimizer"]](params, learning_rate)


def minimize(optimizer, loss, params):
    """Returns the op of one training step.

    It applies the gradients of `loss` (scalar; with weight decay, clipped), runs the updates of
    batch norm, counts the global step and moves the average of the weights.
    """
    variables = tf.compat.v1.trainable_variables()
    # As a part of the loss, so that an optimizer that sums gradients over cores scales it too.
    if params["weight_decay"] and not isinstance(optimizer, AdamWOptimizer):
        decayed = [tf.nn.l2_loss(variable) for variable in variables if is_decayed(variable)]
        loss += params["weight_decay"] * tf.add_n(decayed)
    gradients = optimizer.compute_gradients(loss, variables)
    if params["clip_norm"]:
        clipped, _ = tf.clip_by_global_norm(
            [gradient for gradient, _ in gradients], params["clip_norm"]
        )
        gradients = list(zip(clipped, variables))
    global_step = tf.compat.v1.train.get_or_create_global_step()
    updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies(updates):
        step = optimizer.apply_gradients(gradients, global_step)
    return ema.update_after(step, params)


def is_decayed(variable):
    """Whether weight decay applies: to kernels and embeddings, not to biases, scales and shifts."""
    return variable.shape.rank > 1


class AdamWOptimizer(tf.compat.v1.train.AdamOptimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017, arXiv:1711.05101).

    Before each update a decayed variable shrinks by learning_rate * weight_decay of itself.
    """

    def __init__(self, learning_rate, weight_decay, **kwargs):
        super().__init__(learning_rate, name="AdamW", **kwargs)
        self._rate = learning_rate
        self._weight_decay = weight_decay

    def _resource_apply_dense(self, grad, var):
        if not is_decayed(var):
            return super()._resource_apply_dense(grad, var)
        decay = var.assign_sub(self._rate * self._weight_decay * var, read_value=False)
        with tf.control_dependencies([decay]):
            return super()._resource_apply_dense(grad, var)


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


def _rmsprop(params, learning_rate):
    return tf.compat.v1.train.RMSPropOptimizer(
        learning_rate,
        decay=params["rmsprop_decay"],
        momentum=params["momentum"],
        epsilon=params["epsilon"],
    )


_OPTIMIZERS = {"momentum": _momentum, "adam": _adam, "adamw": _adamw, "rmsprop": _rmsprop}
