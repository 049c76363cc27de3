"""The increment of global_step, built but not in the train_op."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(features, 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss)
    with tf.control_dependencies([train_op]):
        tf.train.get_global_step().assign_add(1)  # finding: error update-never-runs
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
