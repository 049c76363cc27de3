"""Each core scales large gradients."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    step = tf.train.get_global_step()
    (gradient,) = tf.gradients(loss, [kernel])
    norm = tf.norm(gradient)
    gradient = tf.where(norm > 1.0, gradient / norm, gradient)  # finding: warning clip-before-sum
    train_op = optimizer.apply_gradients([(gradient, kernel)], step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
