"""A sum over the cores in a branch of a tf.function and in a loop that ends with the data."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    @tf.function
    def scale(x):
        if tf.reduce_mean(x) > 0:
            x = tf.tpu.cross_replica_sum(x) / 2  # finding: error conditional-collective
        return x

    def total(i, value):
        return i + 1, tf.tpu.cross_replica_sum(value)  # finding: error conditional-collective

    length = tf.cast(labels[0, 0], tf.int32)
    _, offset = tf.while_loop(lambda i, _: i < length, total, [0, tf.stop_gradient(labels)])
    loss = tf.losses.mean_squared_error(offset, tf.layers.dense(scale(features), 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
