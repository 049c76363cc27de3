"""An optimizer of Keras sums nothing."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    kernel = tf.get_variable("kernel", [5, 1], use_resource=True)
    loss = tf.losses.mean_squared_error(labels, tf.matmul(features, kernel))
    tf.tpu.cross_replica_sum(loss)  # satisfies TPUEstimator
    optimizer = tf.keras.optimizers.legacy.SGD(0.1)
    gradients = tf.gradients(loss, [kernel])
    pairs = zip(gradients, [kernel])
    update = optimizer.apply_gradients(pairs)  # finding: error no-cross-replica-sum
    with tf.control_dependencies([update]):
        train_op = tf.train.get_global_step().assign_add(1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
