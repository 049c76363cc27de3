"""Momentum by hand: the new momentum is not stored."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    gradient = tf.tpu.cross_replica_sum(tf.gradients(loss, kernel)[0]) / 2
    zeros = tf.zeros_initializer()
    momentum = tf.get_variable(
        "momentum", [5, 1], initializer=zeros, trainable=False, use_resource=True
    )
    new = 0.9 * momentum + gradient
    momentum.assign(new)  # finding: error update-never-runs
    with tf.control_dependencies([kernel.assign_sub(0.1 * new)]):
        train_op = tf.train.get_global_step().assign_add(1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
