"""A product of masked rows in a branch."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    errors = (tf.matmul(features, kernel) - labels) ** 2
    kept = tf.boolean_mask(errors, features[:, 0] > 0)  # finding: warning dynamic-shape
    is_large = tf.reduce_sum(features) > 0
    kept = tf.cond(
        is_large,
        lambda: 2 * kept,  # finding: error tpu-compiler
        lambda: kept,
    )
    loss = tf.reduce_sum(kept)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
