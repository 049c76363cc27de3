"""An optimizer of Keras on summed gradients."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(features, 1))

    variables = tf.trainable_variables()
    gradients = [tf.tpu.cross_replica_sum(g) / 2 for g in tf.gradients(loss, variables)]
    optimizer = tf.keras.optimizers.legacy.Adam(0.01)
    with tf.control_dependencies([optimizer.apply_gradients(zip(gradients, variables))]):
        train_op = tf.train.get_global_step().assign_add(1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
