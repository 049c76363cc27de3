"""tf.contrib.opt: optimizers."""

from __future__ import annotations

import tensorflow as tf

_train = tf.compat.v1.train

__all__ = [
    "AdamWOptimizer",
    "DecoupledWeightDecayExtension",
    "LARSOptimizer",
    "LazyAdamOptimizer",
    "MomentumWOptimizer",
    "MovingAverageOptimizer",
    "extend_with_decoupled_weight_decay",
]


class LARSOptimizer(_train.MomentumOptimizer):
    """Layer-wise adaptive rate scaling (https://arxiv.org/abs/1708.03888).

    Sparse gradients get plain momentum.

    Args:
      learning_rate: float or scalar tensor.
      momentum: float.
      weight_decay: float, factor of the variable in its gradient.
      eeta: float, the trust coefficient.
      epsilon: float, added to the denominator of the trust ratio.
      skip_list: variables whose name contains one of these get neither scaling nor weight decay.
      use_nesterov: whether to use Nesterov momentum.
    """

    def __init__(
        self,
        learning_rate,
        momentum=0.9,
        weight_decay=0.0001,
        eeta=0.001,
        epsilon=0.0,
        name="LARSOptimizer",
        skip_list=None,
        use_nesterov=False,
    ):
        for option, value in (("momentum", momentum), ("weight_decay", weight_decay)):
            if value < 0.0:
                raise ValueError(f"{option} should be positive: {value}")
        super().__init__(learning_rate, momentum, name=name, use_nesterov=use_nesterov)
        self._weight_decay = weight_decay
        self._eeta = eeta
        self._epsilon = epsilon
        self._skip_list = skip_list

    def compute_lr(self, grad, var):
        """Returns (learning rate of this variable, gradient with weight decay)."""
        rate = self._learning_rate_tensor
        if any(part in var.name for part in self._skip_list or ()):
            return rate, grad
        weights, gradients = tf.norm(var), tf.norm(grad)
        ratio = self._eeta * weights / (gradients + self._weight_decay * weights + self._epsilon)
        is_defined = tf.logical_and(weights > 0, gradients > 0)
        rate = rate * tf.where(is_defined, ratio, tf.ones_like(ratio))
        return rate, grad + self._weight_decay * var

    def _apply_dense(self, grad, var):
        return self._apply_scaled(super()._apply_dense, grad, var)

    def _resource_apply_dense(self, grad, var):
        return self._apply_scaled(super()._resource_apply_dense, grad, var)

    def _apply_scaled(self, apply, grad, var):
        # The momentum accumulates scaled gradients, so a later change of the rate does not
        # rescale it.
        rate, grad = self.compute_lr(grad, var)
        kept, self._learning_rate_tensor = self._learning_rate_tensor, tf.constant(1.0)
        try:
            return apply(grad * tf.cast(rate, grad.dtype), var)
        finally:
            self._learning_rate_tensor = kept


class LazyAdamOptimizer(_train.AdamOptimizer):
    """Adam that updates only the rows with gradients of a variable, and their moments."""

    def _apply_sparse(self, grad, var):
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad, var, indices):
        rate, beta1, beta2, epsilon = self._coefficients(var.dtype.base_dtype)
        first, second = self.get_slot(var, "m"), self.get_slot(var, "v")
        new_first = beta1 * tf.gather(first, indices) + (1 - beta1) * grad
        new_second = beta2 * tf.gather(second, indices) + (1 - beta2) * grad**2
        step = rate * new_first / (tf.sqrt(new_second) + epsilon)
        v1 = tf.compat.v1
        return tf.group(
            v1.scatter_update(first, indices, new_first),
            v1.scatter_update(second, indices, new_second),
            v1.scatter_sub(var, indices, step),
        )

    def _coefficients(self, dtype):
        """Returns (bias-corrected learning rate, beta1, beta2, epsilon)."""
        tensors = (self._lr_t, self._beta1_t, self._beta2_t, self._epsilon_t)
        rate, beta1, beta2, epsilon = (tf.cast(tensor, dtype) for tensor in tensors)
        power1, power2 = (tf.cast(power, dtype) for power in self._get_beta_accumulators())
        return rate * tf.sqrt(1 - power2) / (1 - power1), beta1, beta2, epsilon


class DecoupledWeightDecayExtension:
    """Base class, before an optimizer: decays variables by a fixed factor before each update.

    See https://arxiv.org/abs/1711.05101.

    Args:
      weight_decay: float, scalar tensor or function without arguments.
    """

    def __init__(self, weight_decay, *args, **kwargs):
        self._weight_decay = weight_decay
        self._decay_names = None
        super().__init__(*args, **kwargs)

    def minimize(self, loss, *args, decay_var_list=None, **kwargs):
        """See tf.train.Optimizer.minimize; decays `decay_var_list`, default all variables."""
        self._set_decayed(decay_var_list)
        # The base calls apply_gradients, which would replace the list by its default.
        self._keep_decayed = True
        try:
            return super().minimize(loss, *args, **kwargs)
        finally:
            self._keep_decayed = False

    def apply_gradients(self, grads_and_vars, global_step=None, name=None, decay_var_list=None):
        """See tf.train.Optimizer.apply_gradients; decays `decay_var_list`, default all."""
        if decay_var_list is not None or not getattr(self, "_keep_decayed", False):
            self._set_decayed(decay_var_list)
        return super().apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def _set_decayed(self, variables):
        self._decay_names = {variable.name for variable in variables} if variables else None

    def _factor(self, var):
        """Returns the factor of a decayed variable, or None."""
        if self._decay_names is not None and var.name not in self._decay_names:
            return None
        decay = self._weight_decay() if callable(self._weight_decay) else self._weight_decay
        return tf.cast(decay, var.dtype.base_dtype)

    def _after_decay(self, var, apply, *args, indices=None):
        factor = self._factor(var)
        if factor is None:
            return apply(*args)
        if indices is None:
            decay = tf.compat.v1.assign_sub(var, factor * var)
        else:
            decay = tf.compat.v1.scatter_sub(var, indices, factor * tf.gather(var, indices))
        with tf.control_dependencies([decay]):
            return apply(*args)

    def _apply_dense(self, grad, var):
        return self._after_decay(var, super()._apply_dense, grad, var)

    def _resource_apply_dense(self, grad, var):
        return self._after_decay(var, super()._resource_apply_dense, grad, var)

    def _apply_sparse(self, grad, var):
        return self._after_decay(var, super()._apply_sparse, grad, var, indices=grad.indices)

    def _resource_apply_sparse(self, grad, var, indices):
        apply = super()._resource_apply_sparse
        return self._after_decay(var, apply, grad, var, indices, indices=indices)


def extend_with_decoupled_weight_decay(base_optimizer):
    """Returns a subclass of an optimizer whose first argument is `weight_decay`."""

    class OptimizerWithDecoupledWeightDecay(DecoupledWeightDecayExtension, base_optimizer):
        pass

    return OptimizerWithDecoupledWeightDecay


class AdamWOptimizer(DecoupledWeightDecayExtension, _train.AdamOptimizer):
    """Adam with decoupled weight decay."""

    def __init__(
        self,
        weight_decay,
        learning_rate=0.001,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-8,
        use_locking=False,
        name="AdamW",
    ):
        super().__init__(weight_decay, learning_rate, beta1, beta2, epsilon, use_locking, name)


class MomentumWOptimizer(DecoupledWeightDecayExtension, _train.MomentumOptimizer):
    """Momentum with decoupled weight decay."""

    def __init__(
        self,
        weight_decay,
        learning_rate,
        momentum,
        use_locking=False,
        name="MomentumW",
        use_nesterov=False,
    ):
        super().__init__(weight_decay, learning_rate, momentum, use_locking, name, use_nesterov)


class MovingAverageOptimizer(_train.Optimizer):
    """Wraps an optimizer and keeps an exponential moving average of the variables.

    Args:
      opt: the optimizer.
      average_decay: float, decay of the average.
      num_updates: None, or the number of updates, for a smaller decay at the start.
      sequential_update: whether to average after the update, or at the same time.
    """

    def __init__(self, opt, average_decay=0.9999, num_updates=None, sequential_update=True):
        super().__init__(use_locking=False, name="MovingAverageOptimizer")
        self._optimizer = opt
        self._ema = _train.ExponentialMovingAverage(average_decay, num_updates=num_updates)
        self._swapped = None
        self._sequential_update = sequential_update

    def compute_gradients(self, *args, **kwargs):
        """See tf.train.Optimizer.compute_gradients."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Updates the variables, then their averages."""
        grads_and_vars = list(grads_and_vars)
        update = self._optimizer.apply_gradients(grads_and_vars, global_step, name)
        variables = [var for grad, var in grads_and_vars if grad is not None]
        with tf.control_dependencies([update] if self._sequential_update else []):
            average = self._ema.apply(variables)
        pairs = [(var, self._ema.average(var)) for var in variables]
        self._swapped = {var.op.name: mean for var, mean in pairs}
        self._swapped.update({mean.op.name: var for var, mean in pairs})
        return tf.group(update, average, name="train_with_avg")

    def swapping_saver(self, var_list=None, name="swapping_saver", **kwargs):
        """Returns a Saver that writes the averages under the names of the variables."""
        if self._swapped is None:
            raise RuntimeError("swapping_saver: call apply_gradients or minimize first")
        if var_list is None:
            var_list = tf.compat.v1.global_variables()
        if not isinstance(var_list, dict):
            var_list = {var.op.name: var for var in var_list}
        swapped = {key: self._swapped.get(var.op.name, var) for key, var in var_list.items()}
        return _train.Saver(swapped, name=name, **kwargs)
