"""Each core clips its gradient to a value."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    gradients = tf.gradients(loss, [kernel])
    step = tf.train.get_global_step()
    clipped = tf.clip_by_value(gradients[0], -1.0, 1.0)  # finding: warning clip-before-sum
    train_op = optimizer.apply_gradients([(clipped, kernel)], step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
