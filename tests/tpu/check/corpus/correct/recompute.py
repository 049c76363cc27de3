"""A layer that is computed again for its gradient."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 8], use_resource=True)
    layer = tf.recompute_grad(lambda x: tf.nn.relu(tf.matmul(x, kernel)))
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(layer(features), 1))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
