"""Noise on the weights, another on each core."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.01))
    with tf.control_dependencies([optimizer.minimize(loss, tf.train.get_global_step())]):
        noise = 0.001 * tf.random.normal([5, 1])
        train_op = kernel.assign_add(noise)  # finding: error no-cross-replica-sum
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
