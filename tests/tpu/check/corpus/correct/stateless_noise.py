"""Noise on the weights from a seed, the same on all cores."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    inputs = tf.nn.dropout(features, rate=0.5)  # other numbers on each core, and summed
    loss = tf.losses.mean_squared_error(labels, tf.matmul(inputs, kernel))
    step = tf.train.get_global_step()
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.01))
    with tf.control_dependencies([optimizer.minimize(loss, step)]):
        seed = [3, tf.cast(step.read_value(), tf.int32)]
        train_op = kernel.assign_add(0.001 * tf.random.stateless_normal([5, 1], seed))
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
