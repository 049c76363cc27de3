"""Losses, metrics and shapes of the networks of the examples."""

import numpy as np
import pytest
import tensorflow as tf

from examples.rl.cartpole.model import MODEL as Q_NETWORK
from examples.rl.connect_four.model import MODEL as POLICY_VALUE
from models.model import ModelError
from tests import numerics
from tests.marks import runs_bfloat16

BATCH = 13


def q_labels(random):
    actions = random.integers(0, 2, BATCH).astype(np.int32)
    return {"action": actions, "target": random.normal(size=BATCH).astype(np.float32) * 3}


def test_q_values_have_one_value_for_each_action(session):
    params = {**Q_NETWORK.default_params(), "num_actions": 5}
    observations = {"observation": tf.ones([BATCH, 3])}
    outputs = Q_NETWORK.inference(observations, params, training=True)
    assert Q_NETWORK.predictions(observations, outputs, params)["q_values"].shape == (BATCH, 5)


def test_q_loss_is_the_huber_loss_of_keras(session):
    random = np.random.default_rng(1)
    labels, q_values = q_labels(random), random.normal(size=[BATCH, 2]).astype(np.float32)
    (loss,) = Q_NETWORK.losses({}, labels, {"q_values": tf.constant(q_values)}, {}).values()
    taken = q_values[np.arange(BATCH), labels["action"]]
    keras = tf.keras.losses.Huber(reduction="none")(labels["target"][:, None], taken[:, None])
    values, expected = session.run([loss.values, keras])
    assert (np.abs(taken - labels["target"]) > 1).any()
    numerics.assert_close(values, expected, terms=2, depth=4)


def test_the_loss_ignores_the_action_that_was_not_taken(session):
    labels = q_labels(np.random.default_rng(1))
    q_values = tf.constant(np.random.default_rng(2).normal(size=[BATCH, 2]), tf.float32)
    (loss,) = Q_NETWORK.losses({}, labels, {"q_values": q_values}, {}).values()
    gradient = session.run(tf.gradients(loss.values, q_values)[0])
    rows = np.arange(BATCH)
    assert (gradient[rows, 1 - labels["action"]] == 0).all()
    assert (gradient[rows, labels["action"]] != 0).all()


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=runs_bfloat16)])
def test_policy_and_value_have_the_shapes_of_the_board(session, precision):
    params = {**POLICY_VALUE.default_params(), "filters": 3, "blocks": 2, "precision": precision}
    board = np.random.default_rng(1).integers(0, 2, [BATCH, 5, 9, 2], dtype=np.uint8)
    outputs = POLICY_VALUE.inference({"board": tf.constant(board)}, params, training=False)
    session.run(tf.compat.v1.global_variables_initializer())
    found = session.run({name: tf.cast(x, tf.float32) for name, x in outputs.items()})
    assert found["logits"].shape == (BATCH, 9)
    assert found["value"].shape == (BATCH,)
    assert (np.abs(found["value"]) <= 1).all()
    assert outputs["value"].dtype == precision


def test_policy_loss_is_the_cross_entropy_of_the_visits(session):
    random = np.random.default_rng(1)
    logits, value = random.normal(size=[BATCH, 7]), random.uniform(-1, 1, BATCH)
    policy = random.dirichlet(np.ones(7), BATCH)
    outputs = {"logits": tf.constant(logits), "value": tf.constant(value)}
    labels = {"policy": tf.constant(policy), "value": tf.constant(-value)}
    losses = POLICY_VALUE.losses({}, labels, outputs, {"value_scale": 0.25})
    found = session.run({name: loss.values for name, loss in losses.items()})
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found["policy"], -(policy * np.log(probabilities)).sum(axis=1))
    np.testing.assert_allclose(found["value"], 4 * value**2)
    assert losses["value"].scale == 0.25


def test_every_trainable_variable_has_a_gradient(session):
    params = {**POLICY_VALUE.default_params(), "filters": 3, "blocks": 1}
    board = {"board": tf.constant(np.ones([BATCH, 6, 7, 2], np.uint8))}
    outputs = POLICY_VALUE.inference(board, params, training=True)
    labels = {"policy": tf.fill([BATCH, 7], 1 / 7), "value": tf.ones([BATCH])}
    terms = POLICY_VALUE.losses(board, labels, outputs, params).values()
    loss = tf.add_n([tf.reduce_mean(term.values) for term in terms])
    variables = tf.compat.v1.trainable_variables()
    assert len(variables) == 21
    assert None not in tf.gradients(loss, variables)


@pytest.mark.parametrize(
    ("model", "params", "message"),
    [
        (Q_NETWORK, {"num_actions": 0}, "num_actions=0 must be above 0"),
        (Q_NETWORK, {"hidden_units": [8, -1]}, "hidden_units"),
        (POLICY_VALUE, {"filters": 0}, "filters=0 must not be below 1"),
        (POLICY_VALUE, {"value_scale": -1.0}, "value_scale=-1.0"),
    ],
)
def test_invalid_hyperparameters_are_errors(model, params, message):
    with pytest.raises(ModelError, match=message):
        model.check_params({**model.default_params(), **params})
