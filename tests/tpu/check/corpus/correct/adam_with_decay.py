"""The optimizer of BERT: assignments, weight decay, the step afterwards."""

import tensorflow.compat.v1 as tf


class AdamWeightDecay(tf.train.Optimizer):
    """Adam without correction of the bias."""

    def __init__(self, rate):
        super().__init__(False, "AdamWeightDecay")
        self._rate = rate

    def apply_gradients(self, pairs, global_step=None, name=None):
        assignments = []
        for gradient, variable in pairs:
            zeros = tf.zeros_initializer()
            name = variable.op.name
            m, v = (
                tf.get_variable(
                    f"{name}/{slot}", variable.shape, initializer=zeros, trainable=False
                )
                for slot in ("m", "v")
            )
            new_m = 0.9 * m + 0.1 * gradient
            new_v = 0.999 * v + 0.001 * tf.square(gradient)
            update = new_m / (tf.sqrt(new_v) + 1e-6) + 0.01 * variable
            assignments += [variable.assign(variable - self._rate * update)]
            assignments += [m.assign(new_m), v.assign(new_v)]
        return tf.group(*assignments, name=name)


def model_fn(features, labels, mode, params):
    loss = tf.losses.mean_squared_error(labels, tf.layers.dense(features, 1))
    step = tf.train.get_global_step()

    optimizer = tf.tpu.CrossShardOptimizer(AdamWeightDecay(0.01))
    variables = tf.trainable_variables()
    update = optimizer.apply_gradients(zip(tf.gradients(loss, variables), variables))
    with tf.control_dependencies([update]):
        train_op = step.assign_add(1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
