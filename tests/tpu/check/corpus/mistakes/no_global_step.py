"""minimize without global_step: the training never ends."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(features, 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss)  # finding: error update-never-runs
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
