"""Odd channels, with the gradient of a tape: each layer is named once."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    with tf.GradientTape() as tape:
        x = tf.layers.dense(features, 16)
        x = tf.layers.dense(x, 9)  # finding: warning tiles
        loss = tf.losses.mean_squared_error(labels, tf.layers.dense(x, 1))
    variables = tf.trainable_variables()
    gradients = tape.gradient(loss, variables)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    step = tf.train.get_global_step()
    train_op = optimizer.apply_gradients(zip(gradients, variables), step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
