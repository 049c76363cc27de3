"""A frozen batch norm whose variables are not trainable."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    x = tf.layers.dense(features, 8, trainable=False)
    x = tf.layers.batch_normalization(x, training=True, trainable=False)
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(x, 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
