"""A frozen network with batch norm, and a trained head."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    with tf.variable_scope("backbone"):
        x = tf.layers.dense(features, 8)
        x = tf.layers.batch_normalization(x, training=True)
    with tf.variable_scope("head"):
        loss = tf.losses.mean_squared_error(labels, tf.layers.dense(x, 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(
        loss, tf.train.get_global_step(), var_list=tf.trainable_variables("head")
    )
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
