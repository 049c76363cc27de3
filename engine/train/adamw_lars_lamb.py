"""AdamW, also as in BERT, LARS and LAMB: optimizers with their own rule of weight decay.

LARS and LAMB, for large batches, multiply the update of each kernel by a trust ratio: the norm of
the kernel divided by the norm of its update. Weight decay and trust ratio do not apply to biases
and to the scales and shifts of norms.
"""

from __future__ import annotations

import tensorflow as tf


def is_decayed(variable):
    """Returns whether weight decay applies: True for kernels and embeddings."""
    return variable.shape.rank > 1


def update_number():
    """Returns the number of this update, 1 for the first, float32."""
    return tf.cast(tf.compat.v1.train.get_or_create_global_step() + 1, tf.float32)


class DenseUpdate:
    """Mixin of optimizers that update every row, also of a variable with a sparse gradient.

    The gradient becomes dense here and not before, so that its norm and clipping read few rows.
    """

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
        dense = tf.math.unsorted_segment_sum(grad, indices, handle.shape[0])
        return self._resource_apply_dense(dense, handle)


class AdamWOptimizer(DenseUpdate, tf.compat.v1.train.AdamOptimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017, arXiv:1711.05101).

    Before each update, a kernel w is decayed by learning_rate * weight_decay * w.
    """

    def __init__(self, learning_rate, weight_decay, **kwargs):
        super().__init__(learning_rate, name="AdamW", **kwargs)
        self._rate = learning_rate
        self._weight_decay = weight_decay

    def _resource_apply_dense(self, grad, var):
        if not is_decayed(var):
            return super()._resource_apply_dense(grad, var)
        with tf.control_dependencies([grad]):  # the forward pass has read the variable
            decay = var.assign_sub(self._rate * self._weight_decay * var, read_value=False)
        with tf.control_dependencies([decay]):
            return super()._resource_apply_dense(grad, var)


class BertAdamWOptimizer(DenseUpdate, tf.compat.v1.train.Optimizer):
    """Adam without bias correction, with weight decay: BERT's `AdamWeightDecayOptimizer`.

    A kernel w with the moments m and v is decreased by
    `learning_rate * (m / (sqrt(v) + epsilon) + weight_decay * w)`. Its slots are `<w>/adam_m` and
    `<w>/adam_v`, so checkpoints of google-research/bert resume here, and converters that skip these
    names read checkpoints of this optimizer.
    """

    def __init__(self, learning_rate, weight_decay, beta1, beta2, epsilon):
        super().__init__(use_locking=False, name="BertAdamW")
        self._rate = learning_rate
        self._weight_decay = weight_decay
        self._betas = beta1, beta2
        self._epsilon = epsilon

    def _create_slots(self, var_list):
        for variable in var_list:
            self._zeros_slot(variable, "m", "adam_m")
            self._zeros_slot(variable, "v", "adam_v")

    def _resource_apply_dense(self, grad, handle):
        decay = []
        if self._weight_decay and is_decayed(handle):
            with tf.control_dependencies([grad]):  # the forward pass has read the variable
                decay = [
                    handle.assign_sub(self._rate * self._weight_decay * handle, read_value=False)
                ]
        with tf.control_dependencies(decay):
            # One pass over the variable and its slots. Without powers there is no bias correction.
            return tf.raw_ops.ResourceApplyAdam(
                var=handle.handle,
                m=self.get_slot(handle, "m").handle,
                v=self.get_slot(handle, "v").handle,
                beta1_power=0.0,
                beta2_power=0.0,
                lr=self._rate,
                beta1=self._betas[0],
                beta2=self._betas[1],
                epsilon=self._epsilon,
                grad=grad,
            )


class LARSOptimizer(DenseUpdate, tf.compat.v1.train.MomentumOptimizer):
    """Layer-wise adaptive rate scaling (You, Gitman and Ginsburg 2017, arXiv:1708.03888).

    With `g = gradient + weight_decay * w`, the momentum of a kernel w accumulates
    `learning_rate * trust_coefficient * |w| / |g| * g`. The paper divides by
    `|gradient| + weight_decay * |w|` instead; this is the form of TensorFlow's model garden and
    optax.
    """

    def __init__(self, learning_rate, momentum, weight_decay, trust_coefficient):
        super().__init__(learning_rate, momentum, name="LARS")
        self._rate = learning_rate
        self._decay = momentum
        self._weight_decay = weight_decay
        self._trust_coefficient = trust_coefficient

    def _resource_apply_dense(self, grad, var):
        rate = self._rate
        if is_decayed(var):
            grad += self._weight_decay * var
            rate *= _trust_ratio(self._trust_coefficient * tf.norm(var), tf.norm(grad))
        accumulator = self.get_slot(var, "momentum")
        update = self._decay * accumulator + rate * grad
        return tf.group(
            accumulator.assign(update, read_value=False), var.assign_sub(update, read_value=False)
        )


class LAMBOptimizer(DenseUpdate, tf.compat.v1.train.AdamOptimizer):
    """Layer-wise adaptive moments (You et al. 2019, arXiv:1904.00962, version 5).

    With Adam's bias-corrected update u, a kernel w is decreased by
    `learning_rate * |w| / |u + weight_decay * w| * (u + weight_decay * w)`.
    """

    def __init__(self, learning_rate, weight_decay, beta1, beta2, epsilon):
        super().__init__(learning_rate, beta1, beta2, epsilon, name="LAMB")
        self._rate = learning_rate
        self._weight_decay = weight_decay
        self._betas = beta1, beta2
        self._denominator_epsilon = epsilon

    def _resource_apply_dense(self, grad, var):
        beta1, beta2 = self._betas
        beta1_power, beta2_power = self._get_beta_accumulators()
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        new_m = beta1 * m + (1 - beta1) * grad
        new_v = beta2 * v + (1 - beta2) * tf.square(grad)
        update = new_m / (1 - beta1_power)
        update /= tf.sqrt(new_v / (1 - beta2_power)) + self._denominator_epsilon
        rate = self._rate
        if is_decayed(var):
            update += self._weight_decay * var
            rate *= _trust_ratio(tf.norm(var), tf.norm(update))
        return tf.group(
            m.assign(new_m, read_value=False),
            v.assign(new_v, read_value=False),
            var.assign_sub(rate * update, read_value=False),
        )


def _trust_ratio(numerator, denominator):
    """Returns the trust ratio; 1 if a norm is 0, so that a kernel of zeros can be trained."""
    is_defined = (numerator > 0) & (denominator > 0)
    return tf.where(is_defined, tf.math.divide_no_nan(numerator, denominator), 1.0)
