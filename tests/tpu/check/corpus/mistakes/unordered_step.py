"""The learning rate reads a step that is changed beside it."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    step = tf.train.get_global_step()
    rate = tf.train.polynomial_decay(0.1, step, 100)  # finding: warning unordered-update
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(rate))
    train_op = tf.group(optimizer.minimize(loss), step.assign_add(1))
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
