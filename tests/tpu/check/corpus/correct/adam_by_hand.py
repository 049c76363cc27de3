"""Adam by hand on summed gradients."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(features, 1))

    updates = []
    zeros = {"initializer": tf.zeros_initializer(), "trainable": False, "use_resource": True}
    for variable in tf.trainable_variables():
        (gradient,) = tf.gradients(loss, [variable])
        gradient = tf.tpu.cross_replica_sum(gradient) / 2
        m, v = (
            tf.get_variable(f"{variable.op.name}/{slot}", variable.shape, **zeros) for slot in "mv"
        )
        m_new = m.assign(0.9 * m + 0.1 * gradient)
        v_new = v.assign(0.99 * v + 0.01 * gradient**2)
        updates.append(variable.assign_sub(0.01 * m_new / (tf.sqrt(v_new) + 1e-6)))
    with tf.control_dependencies(updates):
        train_op = tf.train.get_global_step().assign_add(1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
