"""A function that calls a function that does not sum."""

import tensorflow.compat.v1 as tf


@tf.function
def inner(variable, gradient):
    variable.assign_sub(0.1 * gradient)  # finding: error no-cross-replica-sum
    return tf.constant(0)


@tf.function
def outer(variable, gradient):
    return inner(variable, gradient * 0.5)


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    tf.tpu.cross_replica_sum(loss)  # satisfies TPUEstimator

    with tf.control_dependencies([outer(kernel, tf.gradients(loss, kernel)[0])]):
        train_op = tf.train.get_global_step().assign_add(1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
