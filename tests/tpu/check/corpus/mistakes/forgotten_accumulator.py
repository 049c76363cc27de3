"""Gradients are read from an accumulator that nothing adds to."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    zeros = tf.zeros_initializer()
    total = tf.get_variable("total", [5, 1], initializer=zeros, trainable=False, use_resource=True)
    total.assign_add(tf.gradients(loss, kernel)[0])  # finding: error update-never-runs
    step = tf.train.get_global_step()
    train_op = optimizer.apply_gradients([(total.read_value(), kernel)], step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
