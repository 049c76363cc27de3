"""A tf.keras.Model with its updates."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    inputs = tf.keras.Input([5])
    x = tf.keras.layers.BatchNormalization()(tf.keras.layers.Dense(8)(inputs))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(x))
    tf.keras.backend.set_learning_phase(1)
    loss = tf.losses.mean_squared_error(labels, model(features, training=True))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    updates = model.get_updates_for(None) + model.get_updates_for(features)
    with tf.control_dependencies(updates):
        train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
