"""Assignments that are built and kept for later."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    table = tf.get_variable("table", [9, 8], use_resource=True)
    scale = tf.get_variable("scale", [], use_resource=True, trainable=False)
    kept = [
        table.assign(tf.nn.l2_normalize(table, 1)),
        table.assign(tf.zeros([9, 8])),
        scale.assign(scale * 0.5),
        scale.assign_add(1.0),
    ]
    x = tf.gather(table, tf.cast(features[:, 0], tf.int32)) * scale
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(x, 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    assert len(kept) == 4
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
