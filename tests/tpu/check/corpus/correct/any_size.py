"""A tf.function for any batch size, called with a static one."""

import tensorflow.compat.v1 as tf


@tf.function(
    input_signature=[tf.TensorSpec([None, 5]), tf.TensorSpec([None, 1]), tf.TensorSpec([5, 1])]
)
def squares(features, labels, kernel):
    error = tf.matmul(features, kernel) - labels
    return tf.reduce_sum(error**2) / tf.cast(tf.shape(error)[0], tf.float32)


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = squares(features, labels, kernel.read_value())
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
