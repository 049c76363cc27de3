"""A loop of version 1 with gradients."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 5], use_resource=True)
    _, x = tf.while_loop(
        lambda i, x: i < 3,
        lambda i, x: (i + 1, tf.tanh(tf.matmul(x, kernel))),
        (0, features),
        maximum_iterations=3,
    )
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(x, 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
