"""The train_op runs only one of two optimizers."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    table = tf.get_variable("table", [9, 8], use_resource=True)
    x = tf.gather(table, tf.cast(features[:, 0], tf.int32))
    with tf.variable_scope("head"):
        loss = tf.losses.mean_squared_error(labels, tf.layers.dense(x, 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(
        loss, tf.train.get_global_step(), var_list=tf.trainable_variables("head")
    )
    optimizer.minimize(loss, var_list=[table])  # finding: warning update-never-runs
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
