"""A target network that follows the trained one."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    with tf.variable_scope("online"):
        value = tf.layers.dense(features, 1)
    with tf.variable_scope("target"):
        target = tf.layers.dense(features, 1)
    loss = tf.losses.mean_squared_error(labels + 0.9 * tf.stop_gradient(target), value)
    online, frozen = tf.trainable_variables("online"), tf.trainable_variables("target")
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step(), var_list=online)
    with tf.control_dependencies([train_op]):
        train_op = tf.group(*[t.assign(0.99 * t + 0.01 * o) for t, o in zip(frozen, online)])
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
