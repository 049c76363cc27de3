"""The target network never follows."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    with tf.variable_scope("online"):
        kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    with tf.variable_scope("target"):
        target = tf.get_variable("kernel", [5, 1], use_resource=True)
    goal = labels + 0.9 * tf.stop_gradient(tf.matmul(features, target))
    loss = tf.losses.mean_squared_error(goal, tf.matmul(features, kernel))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step(), var_list=[kernel])
    target.assign(0.99 * target + 0.01 * kernel)  # finding: error update-never-runs
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
