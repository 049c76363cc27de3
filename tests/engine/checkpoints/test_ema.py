"""EMA of the weights: its values, and which variables evaluation restores."""

import tensorflow as tf

from engine.checkpoints import ema
from engine.train import optimizers
from tests import numerics

PARAMS = {**optimizers.default_params(), "optimizer": "momentum", "momentum": 0.0}


def train(session, minimize, params, steps):
    """Moves a weight by -1 a step from 10; returns its value at each step."""
    weight = tf.compat.v1.get_variable("weight", initializer=10.0)
    moving = tf.compat.v1.get_variable("moving_mean", initializer=3.0, trainable=False)
    train_op = minimize(weight + 0.0 * moving, params, 1.0)
    session.run(tf.compat.v1.global_variables_initializer())
    values = []
    for _ in range(steps):
        session.run(train_op)
        values.append(session.run(weight))
    return values


def test_values_match_the_formula(session, minimize, tmp_path):
    values = train(session, minimize, {**PARAMS, "ema_decay": 0.5}, steps=6)
    average = 10.0
    for step, value in enumerate(values, start=1):
        decay = min(0.5, (1 + step) / (10 + step))  # with num_updates=global_step
        average = decay * average + (1 - decay) * value
    variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
    found = session.run(variables["weight/ExponentialMovingAverage"])
    # Each step: a decay, a difference, a product and a sum.
    numerics.assert_close(found, average, depth=len(values) * 4)


def test_evaluation_restores_the_ema_and_the_moving_statistics(session, minimize, tmp_path):
    params = {**PARAMS, "ema_decay": 0.5}
    train(session, minimize, params, steps=6)
    checkpoint = tf.compat.v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    average = tf.train.load_variable(checkpoint, "weight/ExponentialMovingAverage")
    assert average != tf.train.load_variable(checkpoint, "weight")
    with tf.Graph().as_default(), tf.compat.v1.Session() as second:
        weight = tf.compat.v1.get_variable("weight", shape=[])
        moving = tf.compat.v1.get_variable("moving_mean", shape=[], trainable=False)
        ema.scaffold(params).saver.restore(second, checkpoint)
        assert second.run(weight) == average
        assert second.run(moving) == 3.0


def test_no_variables_without_a_decay(session, minimize):
    train(session, minimize, PARAMS, steps=1)
    assert not [v for v in tf.compat.v1.global_variables() if "Average" in v.op.name]
    assert ema.scaffold(PARAMS) is None
