"""A step in a tf.function without a sum over the cores."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)

    @tf.function
    def update():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.matmul(features, kernel) - labels) ** 2)
        kernel.assign_sub(0.1 * tape.gradient(loss, kernel))  # finding: error no-cross-replica-sum
        return loss

    loss = update()
    tf.tpu.cross_replica_sum(loss)  # satisfies TPUEstimator
    with tf.control_dependencies([loss]):
        train_op = tf.train.get_global_step().assign_add(1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
