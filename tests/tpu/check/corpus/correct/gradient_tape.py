"""Gradients of a tape in a graph of version 1."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    with tf.GradientTape() as tape:
        hidden = tf.layers.dense(features, 8, activation="relu")
        loss = tf.losses.mean_squared_error(labels, tf.layers.dense(hidden, 1))
    variables = tf.trainable_variables()
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.MomentumOptimizer(0.1, 0.9))
    gradients = tape.gradient(loss, variables)
    train_op = optimizer.apply_gradients(zip(gradients, variables), tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
