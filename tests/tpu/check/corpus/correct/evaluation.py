"""An evaluation assigns nothing, and runs no updates of batch norm."""

import tensorflow.compat.v1 as tf

MODE = "eval"


def model_fn(features, labels, mode, params):
    x = tf.layers.batch_normalization(tf.layers.dense(features, 8), training=True)
    best = tf.get_variable("best", [], use_resource=True, trainable=False)
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(x, 1))
    best.assign(tf.minimum(best, loss))
    metrics = (lambda x: {"mean": tf.metrics.mean(x)}, [labels])
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)
