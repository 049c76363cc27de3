"""The copy of the weights into a target network is not run."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    with tf.variable_scope("online"):
        value = tf.layers.dense(features, 1, use_bias=False)
    with tf.variable_scope("target"):
        target = tf.layers.dense(features, 1, use_bias=False, trainable=False)
    loss = tf.losses.mean_squared_error(labels + 0.9 * tf.stop_gradient(target), value)
    online, frozen = tf.global_variables("online"), tf.global_variables("target")
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    with tf.control_dependencies([train_op]):
        frozen[0].assign(online[0])  # finding: warning update-never-runs
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
