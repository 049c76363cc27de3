"""The gradient of a tape is not summed."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    with tf.GradientTape() as tape:
        loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    tf.tpu.cross_replica_sum(loss)  # satisfies TPUEstimator
    gradient = tape.gradient(loss, kernel)
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    step, pairs = tf.train.get_global_step(), [(gradient, kernel)]
    train_op = optimizer.apply_gradients(pairs, step)  # finding: error no-cross-replica-sum
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
