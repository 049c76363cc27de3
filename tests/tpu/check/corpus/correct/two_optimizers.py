"""One optimizer for the embedding, one for the rest."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    with tf.variable_scope("embedding"):
        table = tf.get_variable("table", [9, 8], use_resource=True)
    ids = tf.cast(features[:, 0], tf.int32)
    with tf.variable_scope("rest"):
        logits = tf.layers.dense(tf.gather(table, ids), 1)
    loss = tf.losses.mean_squared_error(labels, logits)

    def minimize(optimizer, scope, step=None):
        optimizer = tf.tpu.CrossShardOptimizer(optimizer)
        return optimizer.minimize(loss, step, var_list=tf.trainable_variables(scope))

    train_op = tf.group(
        minimize(tf.train.AdagradOptimizer(0.1), "embedding"),
        minimize(tf.train.AdamOptimizer(0.01), "rest", tf.train.get_global_step()),
    )
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
