"""A recurrent network."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    steps = tf.stack([features] * 7, axis=1)
    outputs, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.LSTMCell(8), steps, dtype=tf.float32)
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(outputs[:, -1], 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
