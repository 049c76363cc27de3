"""Spectral normalization: a vector is updated in each step."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 8], use_resource=True)
    u = tf.get_variable("u", [1, 8], use_resource=True, trainable=False)
    v = tf.nn.l2_normalize(tf.matmul(u, kernel, transpose_b=True))
    new_u = tf.stop_gradient(tf.nn.l2_normalize(tf.matmul(v, kernel)))
    sigma = tf.reduce_sum(tf.matmul(tf.stop_gradient(v), kernel) * new_u)
    with tf.control_dependencies([u.assign(new_u)]):
        x = tf.matmul(features, kernel / sigma)
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(x, 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
