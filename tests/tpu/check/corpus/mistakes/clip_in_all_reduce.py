"""A tf.function that clips, and then sums."""

import tensorflow.compat.v1 as tf


@tf.function
def clip_and_sum(gradient):
    factor = 1 / tf.maximum(tf.norm(gradient), 1.0)  # finding: warning clip-before-sum
    return tf.tpu.cross_replica_sum(gradient * factor) / 2


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    tf.tpu.cross_replica_sum(loss)  # satisfies TPUEstimator
    step = tf.train.get_global_step()
    gradient = clip_and_sum(tf.gradients(loss, kernel)[0])
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    train_op = optimizer.apply_gradients([(gradient, kernel)], step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
