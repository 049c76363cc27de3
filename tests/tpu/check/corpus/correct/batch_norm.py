"""Batch norm per core, with UPDATE_OPS."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    x = tf.layers.batch_normalization(tf.layers.dense(features, 8), training=True)
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(x, 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
