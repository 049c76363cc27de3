"""A whole step in a tf.function: tape, sum over the cores, update."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    optimizer = tf.train.GradientDescentOptimizer(0.1)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.matmul(features, kernel) - labels) ** 2)
        (gradient,) = tape.gradient(loss, [kernel])
        gradient = tf.tpu.cross_replica_sum(gradient) / 2
        optimizer.apply_gradients([(gradient, kernel)])
        return loss

    loss = step()
    tf.tpu.cross_replica_sum(loss)  # TPUEstimator looks for one outside of functions
    with tf.control_dependencies([loss]):
        train_op = tf.train.get_global_step().assign_add(1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
