"""Gradients are scaled, cleaned of NaN and summed, and then clipped."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(features, 1))

    variables = tf.trainable_variables()
    gradients = tf.gradients(loss, variables)
    gradients = [tf.where(tf.math.is_finite(g), g, tf.zeros_like(g)) for g in gradients]
    gradients = [tf.tpu.cross_replica_sum(g * 0.5) for g in gradients]
    gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    train_op = optimizer.apply_gradients(zip(gradients, variables), tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
