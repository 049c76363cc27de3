"""bfloat16 activations, float32 variables."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    with tf.tpu.bfloat16_scope():
        x = tf.layers.dense(tf.cast(features, tf.bfloat16), 8, activation="relu")
        logits = tf.cast(tf.layers.dense(x, 1), tf.float32)
    loss = tf.losses.mean_squared_error(labels, logits)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
