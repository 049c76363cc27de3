"""Unique values, scaled."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    ids, _ = tf.unique(tf.cast(features[:, 0], tf.int32))  # finding: warning dynamic-shape
    loss += tf.reduce_sum(tf.cast(ids, tf.float32) * 0.5)  # finding: error tpu-compiler
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
