"""Dynamic loss scale: all cores skip a step if the summed gradients of one are not finite."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(features, 1))
    start = tf.constant_initializer(1024.0)
    scale = tf.get_variable("scale", [], initializer=start, trainable=False)
    weights, step = tf.trainable_variables(), tf.train.get_global_step()
    gradients = [
        tf.tpu.cross_replica_sum(g / 2) / scale for g in tf.gradients(loss * scale, weights)
    ]
    is_finite = tf.reduce_all([tf.reduce_all(tf.is_finite(g)) for g in gradients])
    optimizer = tf.train.AdamOptimizer(0.01)

    def apply():
        sums = [tf.tpu.cross_replica_sum(g) for g in gradients]  # the same condition on all cores
        return optimizer.apply_gradients(zip(sums, weights))

    with tf.control_dependencies([tf.cond(is_finite, apply, tf.no_op)]):
        scaled = scale.assign(tf.where(is_finite, scale * 1.01, scale / 2))
        train_op = tf.group(scaled, step.assign_add(1))
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
