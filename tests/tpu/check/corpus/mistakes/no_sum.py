"""The optimizer is not wrapped."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    tf.tpu.cross_replica_sum(loss)  # satisfies TPUEstimator
    optimizer = tf.train.AdamOptimizer(0.01)
    step = tf.train.get_global_step()
    train_op = optimizer.minimize(loss, step)  # finding: error no-cross-replica-sum
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
