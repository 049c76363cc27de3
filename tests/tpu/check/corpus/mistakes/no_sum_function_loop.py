"""Updates in the loop of a tf.function, without a sum."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)

    @tf.function
    def steps():
        for _ in tf.range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.matmul(features, kernel) - labels) ** 2)
            gradient = tape.gradient(loss, kernel)
            kernel.assign_sub(0.1 * gradient)  # finding: error no-cross-replica-sum
        return tf.constant(0.0)

    loss = steps()
    tf.tpu.cross_replica_sum(loss)  # satisfies TPUEstimator
    with tf.control_dependencies([loss]):
        train_op = tf.train.get_global_step().assign_add(1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
