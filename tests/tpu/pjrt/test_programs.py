"""Control flow of TPUEstimator programs on PJRT devices, and what the devices refuse."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tpu.emulator import tiny
from tpu.emulator import emulator
from tpu.pjrt.client import PJRTError

tf1 = tf.compat.v1


def update_in_a_conditional(features, labels, mode, params):
    """A model_fn whose all-reduce and optimizer are in a conditional, as with a loss scale."""
    del features, params
    weight = tf1.get_variable("weight", initializer=0.0)
    loss = tf.reduce_mean((weight - labels) ** 2)
    step, (gradient,) = tf1.train.get_global_step(), tf.gradients(loss, [weight])

    def update():
        optimizer = tf1.tpu.CrossShardOptimizer(tf1.train.AdamOptimizer(0.1))
        return optimizer.apply_gradients([(gradient, weight)])

    with tf.control_dependencies([tf.cond(tf.math.is_finite(loss), update, tf.no_op)]):
        train_op = step.assign_add(1)
    return tf1.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def test_variables_of_a_conditional_have_their_names(on_pair, tmp_path):
    names = []
    for name, cores in (("devices", on_pair()), ("emulated", emulator.emulate("1x2"))):
        with cores:
            estimator = tiny.estimator(tiny.config(tmp_path / name), update_in_a_conditional)
            estimator.train(tiny.numbers, max_steps=1)
        names.append(estimator.get_variable_names())
    assert names[0] == names[1]
    assert "cond/beta1_power" in names[0]


def call_python(features):
    return tf.ensure_shape(tf.numpy_function(np.sin, [features], tf.float32), [2, 1])


def pass_through_text(features):
    return tf.strings.to_number(tf.strings.as_string(features))


@pytest.mark.parametrize("function", [call_python, pass_through_text])
def test_operations_of_a_host_are_one_line(predict, function):
    place = r"\(at tests/tpu/pjrt/test_programs.py:\d+\)"
    with pytest.raises(NotImplementedError, match=rf"(run Python|string).* {place}$"):
        predict(function)


def test_a_shape_that_depends_on_data_is_named(predict):
    def keep_large(features):
        return tf.boolean_mask(features, features[:, 0] > 3)

    with pytest.raises(PJRTError, match=r"The shape of Where \(at .*:\d+\) depends on data"):
        predict(lambda features: features + tf.reduce_mean(keep_large(features)))
