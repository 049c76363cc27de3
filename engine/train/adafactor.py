"""Adafactor: Adam's second moments in the memory of one row and one column per kernel."""

from __future__ import annotations

import tensorflow as tf

from engine.train.adamw_lars_lamb import DenseUpdate, is_decayed, update_number

# Algorithm 4 of the paper: added to squared gradients, and the least scale of a variable.
_SQUARE_EPSILON, _LEAST_SCALE = 1e-30, 1e-3
_DECAY_POWER = 0.8


class AdafactorOptimizer(DenseUpdate, tf.compat.v1.train.Optimizer):
    """Adafactor without momentum (Shazeer and Stern 2018, arXiv:1804.04235).

    The update is the gradient divided by the root of its mean square, limited to a root mean square
    of `clip_threshold`, times the learning rate and the root mean square of the variable (at least
    0.001). The mean square of a kernel is the product of the means of its rows and columns, the
    last two dimensions; its slots are `<w>/Adafactor` and `<w>/Adafactor_1`, the first only of a
    vector, as in tensor2tensor. Weight decay is decoupled: a kernel w is decayed by
    `learning_rate * weight_decay * w` before.
    """

    def __init__(self, learning_rate, weight_decay, clip_threshold):
        super().__init__(use_locking=False, name="Adafactor")
        self._rate = learning_rate
        self._weight_decay = weight_decay
        self._clip_threshold = clip_threshold

    def _create_slots(self, var_list):
        for variable in var_list:
            shape = variable.shape.as_list()
            slots = {"v": shape}
            if len(shape) > 1:
                slots = {"vr": shape[:-1], "vc": shape[:-2] + shape[-1:]}
            for name, size in slots.items():
                self._get_or_make_slot(variable, tf.zeros(size), name, self._name)

    def _resource_apply_dense(self, grad, handle):
        # The first update keeps nothing of the slots, which are 0.
        decay = 1 - tf.pow(update_number(), -_DECAY_POWER)
        square = tf.square(grad) + _SQUARE_EPSILON
        updates = []

        def averaged(name, value):
            slot = self.get_slot(handle, name)
            new = decay * slot + (1 - decay) * value
            updates.append(slot.assign(new, read_value=False))
            return new

        if handle.shape.rank > 1:
            rows = averaged("vr", tf.reduce_mean(square, -1))
            columns = averaged("vc", tf.reduce_mean(square, -2))
            rows /= tf.reduce_mean(rows, -1, keepdims=True)
            update = grad * tf.math.rsqrt(rows)[..., tf.newaxis]
            update *= tf.math.rsqrt(columns)[..., tf.newaxis, :]
        else:
            update = grad * tf.math.rsqrt(averaged("v", square))
        update /= tf.maximum(1.0, _root_mean_square(update) / self._clip_threshold)
        update *= tf.maximum(_LEAST_SCALE, _root_mean_square(handle))
        if self._weight_decay and is_decayed(handle):
            update += self._weight_decay * handle
        return tf.group(*updates, handle.assign_sub(self._rate * update, read_value=False))


def _root_mean_square(value):
    return tf.sqrt(tf.reduce_mean(tf.square(value)))
