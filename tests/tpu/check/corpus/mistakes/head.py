"""The head of an Estimator makes the spec. It adds a summary, which the session cannot merge."""

import tensorflow.compat.v1 as tf
from tensorflow_estimator.python.estimator.head import regression_head


def model_fn(features, labels, mode, params):
    head = regression_head.RegressionHead()
    logits = tf.layers.dense(features, 1)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdagradOptimizer(0.1))

    def minimize(loss):
        return optimizer.minimize(loss, tf.train.get_global_step())

    return head._create_tpu_estimator_spec(  # finding: error summary
        {"x": features}, mode, logits, labels, train_op_fn=minimize
    )
