"""A custom optimizer with a learning rate per layer."""

import tensorflow.compat.v1 as tf


class Lars(tf.train.MomentumOptimizer):
    """Scales each gradient, which CrossShardOptimizer has summed, by the norm of its variable."""

    def __init__(self, rate):
        super().__init__(rate, 0.9)

    def apply_gradients(self, pairs, global_step=None, name=None):
        scaled = []
        for gradient, variable in pairs:
            ratio = tf.norm(variable) / tf.maximum(tf.norm(gradient), 1e-6)
            scaled.append((gradient * tf.minimum(ratio, 1.0), variable))
        return super().apply_gradients(scaled, global_step, name)


def model_fn(features, labels, mode, params):
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(features, 1))

    optimizer = tf.tpu.CrossShardOptimizer(Lars(0.1))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
