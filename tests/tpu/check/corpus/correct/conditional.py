"""A conditional of version 1 with gradients, on the step."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    step = tf.train.get_global_step()
    x = tf.layers.dense(features, 8)
    is_early = tf.less(step, 100)
    x = tf.cond(is_early, lambda: tf.nn.relu(x), lambda: tf.tanh(x))
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(x, 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
