"""Exponential moving average of the weights (EMA), used instead of them outside training.

Polyak and Juditsky 1992. The decay grows from 0.1 to `ema_decay` over the first steps, as in
`tf.train.ExponentialMovingAverage(num_updates=...)`.
"""

from __future__ import annotations

import re

import tensorflow as tf

_MIRRORED_COPY = re.compile(r"/replica_\d+$")


def add_update(train_op, params):
    """Returns an op that runs `train_op` and then updates the EMA; `train_op` if EMA is off."""
    if not params["ema_decay"]:
        return train_op
    global_step = tf.compat.v1.train.get_or_create_global_step()
    average = tf.train.ExponentialMovingAverage(params["ema_decay"], num_updates=global_step)
    with tf.control_dependencies([train_op]), tf.name_scope("average"):
        return average.apply(tf.compat.v1.trainable_variables())


def variables_to_restore(params, training):
    """Returns `{name in the checkpoint: variable of the default graph}`.

    Outside training a trainable variable is restored from its EMA. The moving statistics of batch
    norm are averages already, so they are restored from their own names.
    """
    if params["ema_decay"] and not training:
        return tf.train.ExponentialMovingAverage(params["ema_decay"]).variables_to_restore()
    variables = tf.compat.v1.global_variables()
    return {saved_name(v): v for v in variables if not _MIRRORED_COPY.search(v.op.name)}


def saved_name(variable):
    """Returns the name of `variable` in checkpoints.

    tf.distribute saves the copies of a variable as one, and a Saver the partitions.
    """
    partition = variable._get_save_slice_info()
    return partition.full_name if partition else _MIRRORED_COPY.sub("", variable.op.name)


def saved_shape(variable):
    """Returns the shape of `variable` in checkpoints, a list; see `saved_name`."""
    partition = variable._get_save_slice_info()
    return list(partition.full_shape) if partition else variable.shape.as_list()


def average_name(name: str) -> str:
    """Returns the name of the EMA of the variable `name`, in graphs and in checkpoints."""
    return f"{name}/{tf.train.ExponentialMovingAverage(0.0).name}"


def find_average(variable):
    """Returns the variable of the default graph that holds the EMA of `variable`, or None."""
    name = average_name(variable.op.name)
    found = [other for other in tf.compat.v1.global_variables() if other.op.name == name]
    return found[0] if found else None


def scaffold_fn(params):
    """Returns the scaffold_fn of a TPUEstimatorSpec: a function that calls `scaffold`, or None."""
    return (lambda: scaffold(params)) if params["ema_decay"] else None


def scaffold(params):
    """Returns the Scaffold for evaluation, prediction and export; None for the default one."""
    if not params["ema_decay"]:
        return None
    saver = tf.compat.v1.train.Saver(variables_to_restore(params, training=False))
    return tf.compat.v1.train.Scaffold(saver=saver)
