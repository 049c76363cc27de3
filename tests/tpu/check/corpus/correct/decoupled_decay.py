"""Weight decay after the update."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(features, 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    with tf.control_dependencies([train_op]):
        train_op = tf.group(*[v.assign_sub(1e-4 * v) for v in tf.trainable_variables()])
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
