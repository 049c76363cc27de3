"""Learning-rate schedules: tables worked out by hand, and Keras' own schedules."""

import pytest
import tensorflow as tf

from common.errors import UsageError
from common.params import Ints
from engine.train import schedules
from tests import numerics

# Fraction of the steps, cosine or power, its place between two rates, warm-up: two operations each.
RATE = {"depth": 8}
STEPS = [0, 1, 5, 10, 35, 60, 99, 100, 150]
# Parameters, and the rate at some steps.
TABLES = [
    ({}, {0: 0.5, 99: 0.5}),
    ({"warmup_steps": 10}, {0: 0.0, 1: 0.05, 5: 0.25, 10: 0.5, 99: 0.5}),
    (
        {"schedule": "step", "decay_boundaries": Ints([30, 60]), "decay_rate": 0.1},
        {0: 0.5, 30: 0.5, 31: 0.05, 60: 0.05, 61: 0.005},
    ),
    ({"schedule": "exponential", "decay_rate": 0.25}, {0: 0.5, 50: 0.25, 100: 0.125}),
    ({"schedule": "cosine"}, {0: 0.5, 50: 0.25, 100: 0.0, 150: 0.0}),
    ({"schedule": "cosine", "warmup_steps": 20}, {10: 0.25, 20: 0.5, 60: 0.25, 100: 0.0}),
    ({"schedule": "cosine", "decay_steps": 40}, {20: 0.25, 40: 0.0, 100: 0.0}),
    ({"schedule": "polynomial", "end_learning_rate": 0.1}, {0: 0.5, 50: 0.3, 100: 0.1}),
    ({"schedule": "polynomial", "decay_power": 2.0}, {0: 0.5, 50: 0.125, 100: 0.0}),
    (
        {"schedule": "inverse_sqrt", "warmup_steps": 25},
        {0: 0.0, 5: 0.1, 25: 0.5, 100: 0.25, 400: 0.125},
    ),
    (  # 2 * 64**-0.5 * min(step**-0.5, step * 25**-1.5)
        {"schedule": "noam", "warmup_steps": 25, "learning_rate": 2.0, "hidden_size": 64},
        {5: 0.01, 25: 0.05, 100: 0.025},
    ),
]


def make_params(**changes):
    return {**schedules.default_params(), "learning_rate": 0.5, **changes}


def rates(params, session, steps=STEPS, train_steps=100, batch_size=32):
    with session.graph.as_default():
        step = tf.compat.v1.placeholder(tf.int64, [])
        rate = schedules.learning_rate(params, step, train_steps, batch_size)
        return [session.run(rate, {step: value}) for value in steps]


@pytest.mark.parametrize(("params", "table"), TABLES)
def test_a_table_worked_out_by_hand(session, params, table):
    worked_out = rates(make_params(**params), session, table)
    numerics.assert_close(worked_out, list(table.values()), **RATE)


@pytest.mark.parametrize("params", [params for params, _ in TABLES])
def test_no_text_is_in_the_graph_which_a_tpu_has_none_of(session, params):
    rates(make_params(**params), session, [5])
    tensors = [tensor for op in session.graph.get_operations() for tensor in op.outputs]
    assert tf.string not in {tensor.dtype for tensor in tensors}


@pytest.mark.parametrize(
    ("params", "keras"),
    [
        (
            {"schedule": "cosine", "end_learning_rate": 0.05},
            lambda keras: keras.CosineDecay(0.5, 100, alpha=0.1),
        ),
        (
            {"schedule": "cosine", "warmup_steps": 10},
            lambda keras: keras.CosineDecay(0.0, 90, warmup_target=0.5, warmup_steps=10),
        ),
        (
            {"schedule": "exponential", "decay_steps": 30, "decay_rate": 0.3},
            lambda keras: keras.ExponentialDecay(0.5, 30, 0.3),
        ),
        (
            {"schedule": "polynomial", "decay_power": 1.5, "end_learning_rate": 0.01},
            lambda keras: keras.PolynomialDecay(0.5, 100, 0.01, 1.5),
        ),
        (
            {"schedule": "step", "decay_boundaries": Ints([5, 60])},
            lambda keras: keras.PiecewiseConstantDecay([5, 60], [0.5, 0.05, 0.005]),
        ),
    ],
)
def test_the_rate_is_that_of_keras(session, eager, params, keras):
    schedule = keras(tf.keras.optimizers.schedules)
    theirs = [schedule(step).numpy() for step in STEPS]
    ours = rates(make_params(**params), session)
    numerics.assert_close(ours, theirs, **RATE)


def test_with_a_base_batch_size_the_rate_grows_with_the_batch(session):
    params = make_params(base_batch_size=256, warmup_steps=10, schedule="cosine")
    found = rates(params, session, [5, 10, 55, 100], batch_size=1024)
    numerics.assert_close(found, [1.0, 2.0, 1.0, 0.0], **RATE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule": "cosinus"}, "Did you mean 'cosine'"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be above 0"),
        ({"warmup_steps": -1}, "warmup_steps=-1 must not be below 0"),
        ({"schedule": "step"}, "need each other"),
        ({"decay_boundaries": Ints([10])}, "need each other"),
        ({"schedule": "step", "decay_boundaries": Ints([60, 30])}, "must be increasing steps"),
        ({"schedule": "step", "decay_boundaries": Ints([-1, 3])}, "must be increasing steps"),
    ],
)
def test_a_wrong_value_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        schedules.check_params(make_params(**changes))
