"""Python in the body of a loop of a tf.function."""

import tensorflow.compat.v1 as tf


@tf.function
def repeat(x):
    for _ in tf.range(3):
        x = tf.numpy_function(lambda x: x, [x], tf.float32)  # finding: error py_func
        x.set_shape([])
    return x


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    loss += tf.stop_gradient(repeat(loss))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
