"""An optimizer that accumulates summed gradients in one branch and applies them in the other."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(features, 1))
    step = tf.train.get_global_step()
    ops = []
    for variable in tf.trainable_variables():
        zeros = tf.zeros_initializer()
        total = tf.get_variable(
            f"{variable.op.name}/total", variable.shape, initializer=zeros, trainable=False
        )
        gradient = tf.tpu.cross_replica_sum(tf.gradients(loss, variable)[0] / 2)

        def apply(variable=variable, total=total, gradient=gradient):
            update = variable.assign_sub(0.1 * (total + gradient))
            with tf.control_dependencies([update]):
                return tf.group(total.assign(tf.zeros_like(total)))

        def accumulate(total=total, gradient=gradient):
            return tf.group(total.assign_add(gradient))

        ops.append(tf.cond(tf.equal(tf.floormod(step, 4), 3), apply, accumulate))
    with tf.control_dependencies(ops):
        train_op = step.assign_add(1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
