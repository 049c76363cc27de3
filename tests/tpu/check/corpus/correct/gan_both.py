"""A GAN: both networks are updated in each step."""

import tensorflow.compat.v1 as tf


def model_fn(features, labels, mode, params):
    noise = tf.random.uniform([8, 3])
    with tf.variable_scope("generator"):
        fake = tf.layers.dense(noise, 5)
        fake = tf.layers.batch_normalization(fake, training=True)

    def discriminate(x):
        with tf.variable_scope("discriminator", reuse=tf.AUTO_REUSE):
            x = tf.layers.batch_normalization(
                tf.layers.dense(x, 8, name="a"), training=True, name="n"
            )
            return tf.reduce_mean(tf.layers.dense(x, 1, name="b"))

    real_score, fake_score = discriminate(features), discriminate(fake)
    discriminator_loss = fake_score - real_score
    generator_loss = -fake_score

    def minimize(loss, scope, step=None):
        optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
        updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS, scope)
        with tf.control_dependencies(updates):
            return optimizer.minimize(loss, step, var_list=tf.trainable_variables(scope))

    loss = discriminator_loss + generator_loss
    with tf.control_dependencies([minimize(discriminator_loss, "discriminator")]):
        train_op = minimize(generator_loss, "generator", tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
