"""Sizes from outside, used in loops and in the branches of conditionals."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    size = tf.size(features) // 5
    is_large = tf.reduce_sum(features) > 0
    x = tf.cond(is_large, lambda: tf.reshape(features, [size, 5]), lambda: tf.ones([size, 5]))
    x = tf.while_loop(
        lambda i, size, x: i < 3,
        lambda i, size, x: (i + 1, size, 2 * tf.reshape(x, [size, 5])),
        [0, size, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([]), tf.TensorShape([None, None])],
    )[2]
    x = tf.reshape(x, features.shape)

    @tf.function
    def of_function(x, size):
        x = tf.cond(is_large, lambda: tf.reshape(x, [size, 5]), lambda: tf.ones([size, 5]))
        for _ in tf.range(3):
            tf.autograph.experimental.set_loop_options(
                shape_invariants=[(x, tf.TensorShape([None, None]))]
            )
            x = 2 * tf.reshape(x, [size, 5])
        return x

    x = tf.reshape(of_function(x, size), features.shape)
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(x, 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
