"""tf.contrib of TensorFlow 1.x."""

import tensorflow as tf


def model_fn(features, labels, mode, params):
    x = tf.contrib.layers.layer_norm(tf.layers.dense(features, 8))
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(x, 1))
    optimizer = tf.contrib.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.contrib.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
