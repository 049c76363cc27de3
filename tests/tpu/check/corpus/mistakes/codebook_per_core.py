"""A codebook (VQ-VAE) that each core moves towards its own examples."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    codes = tf.get_variable("codes", [8, 8], trainable=False)
    x = tf.layers.dense(features, 8)
    nearest = tf.one_hot(tf.argmax(tf.matmul(x, codes, transpose_b=True), 1), 8)
    loss = tf.reduce_mean((tf.matmul(nearest, codes) - x) ** 2)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    with tf.control_dependencies([optimizer.minimize(loss, tf.train.get_global_step())]):
        means = tf.matmul(nearest, x, transpose_a=True)
        train_op = codes.assign(0.9 * codes + 0.1 * means)  # finding: warning per-core-state
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
