"""Keras layers, whose updates the train_op runs."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    layers = [
        tf.keras.layers.Dense(8),
        tf.keras.layers.BatchNormalization(),
        tf.keras.layers.Dense(1),
    ]
    x = layers[0](features)
    x = layers[1](x, training=mode == tf.estimator.ModeKeys.TRAIN)
    loss = tf.losses.mean_squared_error(labels, layers[2](x))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    with tf.control_dependencies(layers[1].updates):
        train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
