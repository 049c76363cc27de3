"""Accumulated gradients that are not summed."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    tf.tpu.cross_replica_sum(loss)  # satisfies TPUEstimator
    step = tf.train.get_global_step()
    zeros = tf.zeros_initializer()
    total = tf.get_variable("total", [5, 1], initializer=zeros, trainable=False, use_resource=True)
    with tf.control_dependencies([total.assign_add(tf.gradients(loss, kernel)[0])]):
        update = kernel.assign_sub(0.1 * total.read_value())  # finding: error no-cross-replica-sum
    with tf.control_dependencies([update]):
        train_op = step.assign_add(1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
