"""A size that one of two branches gives."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    y = tf.layers.dense(features, 1)
    size = tf.cond(tf.reduce_sum(y) > 0, lambda: tf.constant(3), lambda: tf.constant(5))
    first = tf.reduce_sum(tf.slice(y, [0, 0], [size, 1]))  # finding: warning dynamic-shape
    loss = first + tf.losses.mean_squared_error(labels, y)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
