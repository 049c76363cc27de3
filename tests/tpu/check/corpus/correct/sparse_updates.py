"""Sparse gradients, summed by CrossShardOptimizer."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    table = tf.get_variable("table", [9, 8], use_resource=True)
    rows = tf.nn.embedding_lookup(table, tf.cast(features[:, :2], tf.int32))
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(tf.reduce_mean(rows, 1), 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdagradOptimizer(0.1))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
