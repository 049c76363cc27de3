"""tf.switch_case in a tf.function."""

import tensorflow.compat.v1 as tf


@tf.function
def activate(x, index):
    return tf.switch_case(index, [lambda: tf.nn.relu(x), lambda: tf.tanh(x), lambda: x])


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    index = tf.cast(tf.math.floormod(tf.train.get_global_step(), 3), tf.int32)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(activate(features, index), kernel))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
