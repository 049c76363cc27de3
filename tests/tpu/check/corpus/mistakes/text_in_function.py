"""Text in a tf.function."""

import tensorflow.compat.v1 as tf


@tf.function
def round_trip(x):
    text = tf.strings.as_string(x)  # finding: error string
    return tf.reshape(tf.strings.to_number(text), [])  # finding: error op


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    loss += round_trip(tf.stop_gradient(loss))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
