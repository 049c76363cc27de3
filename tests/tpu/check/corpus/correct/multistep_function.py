"""As multistep_optimizer, with the branches in a tf.function."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    total = tf.get_variable("total", [5, 1], trainable=False, use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    step = tf.train.get_global_step()
    gradient = tf.tpu.cross_replica_sum(tf.gradients(loss, kernel)[0] / 2)

    @tf.function
    def update(step, gradient):
        if step % 4 == 3:
            kernel.assign_sub(0.1 * (total + gradient))
            total.assign(tf.zeros([5, 1]))
        else:
            total.assign_add(gradient)
        return step

    with tf.control_dependencies([update(step, gradient)]):
        train_op = step.assign_add(1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
