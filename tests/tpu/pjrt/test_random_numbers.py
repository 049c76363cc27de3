"""Random numbers of each core, step, iteration of a loop and branch of a conditional."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function

from tests import numerics
from tests.marks import slow
from tests.tpu.emulator import tiny

tf1 = tf.compat.v1
LOOPS, ITERATIONS = 3, 5


def in_nested_loops(features):
    """Draws a number for each row in each iteration of a loop in a loop, and after it."""

    def outer(i, drawn):
        def inner(j, drawn):
            place = tf.one_hot(i * (ITERATIONS + 1) + j, drawn.shape[1])
            return j + 1, drawn + place * tf.random.uniform([2, 1])

        _, drawn = tf.while_loop(lambda j, _: j < ITERATIONS, inner, [0, drawn])
        place = tf.one_hot(i * (ITERATIONS + 1) + ITERATIONS, drawn.shape[1])
        return i + 1, drawn + place * tf.random.uniform([2, 1])

    drawn = tf.zeros_like(features) * tf.zeros([LOOPS * (ITERATIONS + 1)])
    _, drawn = tf.while_loop(lambda i, _: i < LOOPS, outer, [0, drawn])
    return drawn


def in_conditionals(features):
    """Draws the first number of a row in one of two branches, the second always in one."""

    def draw():
        return tf.random.uniform([2])

    is_large = features[0, 0] > 3
    first = tf.cond(is_large, lambda: 1 + draw(), draw)
    second = tf.switch_case(tf.constant(1), [draw, lambda: 2 + draw(), draw])
    return tf.stack([first, second], 1)


def in_functions(features):
    """Calls a function of each kind twice."""
    del features
    first = tf.function(lambda: tf.random.normal([2]))
    second = function.Defun(func_name="second")(lambda: tf.random.normal([2]))
    return tf.stack([first(), first(), second(), second()], 1)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("draw", [in_functions, slow(in_nested_loops), slow(in_conditionals)])
def test_every_draw_differs_and_a_run_repeats(predict, draw):
    drawn = predict(draw)
    assert len(drawn) == 8
    assert len(np.unique(drawn)) == drawn.size
    np.testing.assert_array_equal(predict(draw), drawn)
    if draw is in_conditionals:
        assert (drawn.astype(int) == [[0, 2]] * 4 + [[1, 2]] * 4).all()


def test_gradients_use_the_dropout_of_the_forward_pass(on_pair, tmp_path):
    losses = []

    def model_fn(features, labels, mode, params):
        del features, labels, params
        weights = tf1.get_variable("weights", [99], initializer=tf1.ones_initializer())

        def add_kept(i, total):
            return i + 1, total + tf.reduce_sum(tf1.nn.dropout(weights, rate=0.5))

        _, loss = tf.while_loop(
            lambda i, _: i < ITERATIONS, add_kept, [0, 0.0], maximum_iterations=ITERATIONS
        )
        optimizer = tf1.tpu.CrossShardOptimizer(tf1.train.GradientDescentOptimizer(1.0))
        train_op = optimizer.minimize(loss, tf1.train.get_global_step())

        def host_call(losses_of_cores):
            return tf1.py_func(lambda x: losses.append(x) or 0, [losses_of_cores], tf.int64)

        return tf1.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, train_op=train_op, host_call=(host_call, [tf.reshape(loss, [1])])
        )

    with on_pair():
        estimator = tiny.estimator(tiny.config(tmp_path), model_fn)
        estimator.train(tiny.numbers, max_steps=1)
    (of_cores,) = losses
    assert of_cores[0] != of_cores[1]
    update = np.sum(1 - estimator.get_variable_value("weights"))
    numerics.assert_close(update, np.mean(of_cores), terms=99 * ITERATIONS)
