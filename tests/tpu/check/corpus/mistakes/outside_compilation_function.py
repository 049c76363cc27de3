"""A function on the host in each step."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    errors = tf.squeeze(tf.matmul(features, kernel) - labels, 1)

    @tf.function
    def mean_of_positive(x):
        kept = tf.boolean_mask(x, x > 0)  # finding: warning outside-compilation
        return tf.reduce_mean(kept)  # finding: warning outside-compilation

    hosted = tf.tpu.outside_compilation(mean_of_positive, tf.stop_gradient(errors))
    loss = tf.reduce_mean(errors**2) + hosted
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
