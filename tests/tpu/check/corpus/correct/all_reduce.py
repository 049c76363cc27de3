"""An own all-reduce of gradients, in groups that are all cores."""

import tensorflow.compat.v1 as tf
from tensorflow.python.tpu.ops import tpu_ops


def model_fn(features, labels, mode, params):
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(features, 1))

    variables = tf.trainable_variables()
    gradients = [
        tpu_ops.cross_replica_sum(gradient, [[0, 1]]) / 2
        for gradient in tf.gradients(loss, variables)
    ]
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    train_op = optimizer.apply_gradients(zip(gradients, variables), tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
