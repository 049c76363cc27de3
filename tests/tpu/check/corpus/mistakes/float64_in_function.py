"""float64 in a tf.function."""

import tensorflow.compat.v1 as tf


@tf.function
def scale(x):
    wide = tf.cast(tf.stop_gradient(x), tf.float64)  # finding: warning float64
    return tf.cast(tf.reduce_mean(wide), tf.float32)  # finding: warning float64


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    loss *= scale(features)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
