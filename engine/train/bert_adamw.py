"""The optimizer of google-research/bert, with its slot names."""

from __future__ import annotations

import tensorflow as tf

from engine.train.adamw_lars_lamb import is_decayed


class BertAdamWOptimizer(tf.compat.v1.train.Optimizer):
    """Adam without bias correction, with weight decay: BERT's `AdamWeightDecayOptimizer`.

    A kernel w with the moments m and v is decreased by
    `learning_rate * (m / (sqrt(v) + epsilon) + weight_decay * w)`. Its slots are `<w>/adam_m` and
    `<w>/adam_v`, so checkpoints of google-research/bert resume here, and converters that skip these
    names read checkpoints of this optimizer. Gradients must be dense.
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
        beta1, beta2 = self._betas
        m, v = self.get_slot(handle, "m"), self.get_slot(handle, "v")
        new_m = beta1 * m + (1 - beta1) * grad
        new_v = beta2 * v + (1 - beta2) * tf.square(grad)
        update = new_m / (tf.sqrt(new_v) + self._epsilon)
        if self._weight_decay and is_decayed(handle):
            update += self._weight_decay * handle
        return tf.group(
            m.assign(new_m, read_value=False),
            v.assign(new_v, read_value=False),
            handle.assign_sub(self._rate * update, read_value=False),
        )
