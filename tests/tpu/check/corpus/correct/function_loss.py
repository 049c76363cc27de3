"""A loss in a tf.function."""

import tensorflow.compat.v1 as tf


@tf.function
def squares(features, labels, kernel):
    return tf.reduce_mean((tf.matmul(features, kernel) - labels) ** 2)


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = squares(features, labels, kernel)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
