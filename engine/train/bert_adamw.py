"""The optimizer of google-research/bert, with its slot names."""

from __future__ import annotations

import tensorflow as tf

from engine.train.adamw_lars_lamb import DenseUpdate, is_decayed


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
