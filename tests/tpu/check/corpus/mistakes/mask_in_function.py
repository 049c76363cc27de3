"""A mask in a tf.function."""

import tensorflow.compat.v1 as tf


@tf.function
def total(x):
    kept = tf.boolean_mask(x, x[:, 0] > 0)  # finding: warning dynamic-shape
    return tf.reduce_sum(tf.nn.leaky_relu(kept))  # finding: error tpu-compiler


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    loss += total(tf.stop_gradient(features))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
