"""A loop and a conditional of version 2 in a tf.function."""

import tensorflow.compat.v1 as tf


@tf.function
def transform(x, kernel):
    for i in tf.range(3):
        x = tf.tanh(tf.matmul(x, kernel))
        if i > 1:
            x += 1.0
    return x


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 5], use_resource=True)
    x = transform(features, kernel)
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(x, 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
