"""A discriminator with fused batch norm that is called twice, as in DCGAN."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    def discriminate(images):
        with tf.variable_scope("discriminator", reuse=tf.AUTO_REUSE):
            x = tf.layers.batch_normalization(images, training=True, name="norm")
            return tf.reduce_mean(tf.layers.dense(tf.layers.flatten(x), 1, name="score"))

    images = tf.reshape(features, [-1, 5, 1, 1])
    with tf.variable_scope("generator"):
        fake = tf.reshape(tf.layers.dense(tf.random.uniform([8, 3]), 5), [-1, 5, 1, 1])
    loss = discriminate(fake) - discriminate(images)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        first = optimizer.minimize(loss, var_list=tf.trainable_variables("discriminator"))
        step, weights = tf.train.get_global_step(), tf.trainable_variables("generator")
        optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
        second = optimizer.minimize(-loss, step, var_list=weights)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=tf.group(first, second))
