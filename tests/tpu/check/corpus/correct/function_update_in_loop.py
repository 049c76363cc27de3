"""Updates in the loop of a tf.function, of gradients summed there."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)

    @tf.function
    def steps():
        loss = tf.constant(0.0)
        for _ in tf.range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.matmul(features, kernel) - labels) ** 2)
            gradient = tf.tpu.cross_replica_sum(tape.gradient(loss, kernel))
            kernel.assign_sub(0.05 * gradient)
        return loss

    loss = steps()
    tf.tpu.cross_replica_sum(loss)  # TPUEstimator looks for one outside of functions
    with tf.control_dependencies([loss]):
        train_op = tf.train.get_global_step().assign_add(1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
