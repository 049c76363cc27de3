"""An update in a conditional, without a sum."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    tf.tpu.cross_replica_sum(loss)  # satisfies TPUEstimator
    step = tf.train.get_global_step()
    (gradient,) = tf.gradients(loss, [kernel])

    def update():
        return tf.group(kernel.assign_sub(0.1 * gradient))  # finding: error no-cross-replica-sum

    applied = tf.cond(tf.less(step, 10), update, tf.no_op)
    with tf.control_dependencies([applied]):
        train_op = step.assign_add(1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
