"""An exponential moving average of the weights, which evaluation and export use in their place.

Polyak and Juditsky 1992; the decay grows from 0.1 to `ema_decay` over the first steps, as in
`tf.train.ExponentialMovingAverage(num_updates=...)`.
"""

from __future__ import annotations

import re

import tensorflow as tf

_COPY = re.compile(r"/replica_\d+$")


def update_after(train_op, params):
    """Returns `train_op`, or an op that moves the average after it."""
    if not params["ema_decay"]:
        return train_op
    global_step = tf.compat.v1.train.get_or_create_global_step()
    average = tf.train.ExponentialMovingAverage(params["ema_decay"], num_updates=global_step)
    with tf.control_dependencies([train_op]), tf.name_scope("average"):
        return average.apply(tf.compat.v1.trainable_variables())


def restored_variables(params, training):
    """Returns `{name in the checkpoint: variable of this graph}`.

    Outside training a trainable variable is restored from its average. The statistics of batch norm
    are averages already and are restored as they are.
    """
    if params["ema_decay"] and not training:
        return tf.train.ExponentialMovingAverage(params["ema_decay"]).variables_to_restore()
    names = {variable.op.name: variable for variable in tf.compat.v1.global_variables()}
    # A strategy's copies of a variable are saved as one.
    return {name: names[name] for name in names if not _COPY.search(name)}


def average_of(variable):
    """Returns the variable of the default graph that holds the average of `variable`, or None."""
    name = f"{variable.op.name}/{tf.train.ExponentialMovingAverage(0.0).name}"
    found = [other for other in tf.compat.v1.global_variables() if other.op.name == name]
    return found[0] if found else None


def scaffold_fn(params):
    """Returns `scaffold` as a TPUEstimatorSpec takes it: a function, or None."""
    return (lambda: scaffold(params)) if params["ema_decay"] else None


def scaffold(params):
    """Returns the Scaffold of evaluation, prediction and export; None where the default will do."""
    if not params["ema_decay"]:
        return None
    saver = tf.compat.v1.train.Saver(restored_variables(params, training=False))
    return tf.compat.v1.train.Scaffold(saver=saver)
