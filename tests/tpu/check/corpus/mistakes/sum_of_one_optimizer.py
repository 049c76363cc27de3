"""One of two optimizers is not wrapped."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    table = tf.get_variable("table", [5, 8], use_resource=True)
    x = tf.matmul(features, table)
    with tf.variable_scope("head"):
        loss = tf.losses.mean_squared_error(labels, tf.layers.dense(x, 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    step = tf.train.get_global_step()
    head = optimizer.minimize(loss, step, var_list=tf.trainable_variables("head"))
    plain = tf.train.AdagradOptimizer(0.1)
    embedding = plain.minimize(loss, var_list=[table])  # finding: error no-cross-replica-sum
    train_op = tf.group(head, embedding)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
