"""The updates of a Keras layer are not in UPDATE_OPS."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    x = tf.keras.layers.Dense(8)(features)
    x = tf.keras.layers.BatchNormalization()(x, training=True)  # finding: error update-never-runs
    loss = tf.losses.mean_squared_error(labels, tf.keras.layers.Dense(1)(x))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
