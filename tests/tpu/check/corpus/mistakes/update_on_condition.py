"""The gradients are summed, but each core decides by its own loss whether to apply them."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    gradient = tf.tpu.cross_replica_sum(tf.gradients(loss, kernel)[0] / 2)

    def apply():
        return tf.group(kernel.assign_sub(0.1 * gradient))  # finding: error no-cross-replica-sum

    with tf.control_dependencies([tf.cond(loss < 9.0, apply, tf.no_op)]):
        train_op = tf.train.get_global_step().assign_add(1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
