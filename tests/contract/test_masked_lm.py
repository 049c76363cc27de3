"""Two losses with different weights, as in BERT: the same training on one core and on many."""

import numpy as np
import pytest
import tensorflow as tf

from engine.train import loss_reduction, train_step
from models.model import Loss, ModelError
from tests import numerics
from tests.contract.masked_lm import data
from tests.marks import slow

CASE, BATCH, STEPS = "masked_lm", 24, 5
TRAIN = [
    "--mode=train",
    f"--train_batch_size={BATCH}",
    f"--train_steps={STEPS}",
    "--params=epsilon=0.01,learning_rate=0.01,clip_norm=1,weight_decay=0.01",
]
# Tokens of a global batch, whose gradients are summed in every step; variables of size 1.
ARITHMETIC = {"terms": BATCH * data.LENGTH, "depth": STEPS, "magnitude": 1.0}
# How far the variables must differ after a training with a fault.
FAR = 10


@pytest.fixture(scope="module")
def start(run_case, trained, variables, tmp_path_factory):
    """Returns the checkpoint that the trainings start from, and the variables of one core."""
    folder = tmp_path_factory.mktemp("start")
    warm_start = f"--warm_start_from={trained(CASE)}"
    run_case(CASE, folder / "end", *TRAIN, warm_start)
    return warm_start, variables(folder / "end")


@pytest.fixture
def excess(start, variables, tmp_path):
    """Trains again; returns the difference from one core in tolerances: `excess(run, *flags)`."""

    def measure(run, *arguments):
        warm_start, expected = start
        run(CASE, tmp_path / "model", *TRAIN, warm_start, *arguments)
        got = variables(tmp_path / "model")
        assert got["global_step"] == expected["global_step"] == STEPS
        return numerics.excess(got, expected, **ARITHMETIC)

    return measure


def test_cores_have_unequal_numbers_of_masked_tokens(session):
    pipeline = data.make_pipeline(None)
    batches = pipeline.train_input_fn("train", seed=1)({"batch_size": BATCH})
    features, _ = session.run(tf.compat.v1.data.make_one_shot_iterator(batches).get_next())
    counts = np.sum(features["tokens"].reshape(8, -1) == data.MASK, axis=1)
    assert 2 * counts.min() < counts.max()


@pytest.mark.parametrize(
    ("topology", "parts"), [slow("1x2", 3), slow("v2-8", 1), slow("v2-8", 3), slow("2x2", 1)]
)
def test_training_on_cores_equals_training_on_one(excess, run_case_on_tpu, topology, parts):
    arguments = [f"--tpu_topology={topology}", f"--accumulate_steps={parts}"]
    assert excess(run_case_on_tpu, *arguments) < 1


@pytest.mark.parametrize("parts", [slow(2), slow(8)])
def test_accumulated_micro_batches_equal_one_batch(excess, run_case, parts):
    assert excess(run_case, f"--accumulate_steps={parts}") < 1


@pytest.mark.slow
def test_a_mean_over_the_tokens_of_each_core_differs(excess, run_case_on_tpu, monkeypatch):
    def per_core(terms, params):
        return {"token": tf.reduce_sum(terms["token"].weights), "sentence": BATCH / 2}

    monkeypatch.setattr(loss_reduction, "denominators", per_core)
    assert excess(run_case_on_tpu) > FAR


@pytest.mark.slow
def test_a_mean_over_the_tokens_of_each_micro_batch_differs(excess, run_case, monkeypatch):
    monkeypatch.setattr(train_step, "_divisors", lambda *_: None)
    assert excess(run_case, "--accumulate_steps=3") > FAR


@pytest.mark.parametrize(("values", "weights"), [([24, 7], None), ([24], [24, 7]), slow([], None)])
def test_losses_that_are_not_one_number_per_example_are_an_error(values, weights):
    term = Loss(tf.ones(values), None if weights is None else tf.ones(weights))
    with pytest.raises(ModelError, match=r"losses: 'token' has (values|weights) of shape \("):
        loss_reduction.denominators({"token": term}, {})


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("batch_size", [13, slow(1), slow(41)])
def test_losses_and_metrics_are_those_of_the_whole_split(evaluate, predict, batch_size):
    metrics, predicted = evaluate(CASE, f"--eval_batch_size={batch_size}"), predict(CASE)
    features, labels = data.make_pipeline(None).splits["test"]
    is_masked = features["tokens"] == data.MASK
    rows, columns = np.nonzero(is_masked)
    true_tokens = labels["tokens"][rows, columns]
    token = -np.log(predicted["token_probabilities"][rows, columns, true_tokens])
    right = np.where(
        labels["is_ascending"],
        predicted["ascending_probability"],
        1 - predicted["ascending_probability"],
    )
    expected = {
        "token_loss": token.mean(),
        "sentence_loss": -np.log(right).mean(),
        "average_loss": token.mean() - 0.5 * np.log(right).mean(),
        "token_accuracy": np.mean(predicted["tokens"][rows, columns] == true_tokens),
        "sentence_accuracy": np.mean(predicted["is_ascending"] == labels["is_ascending"]),
    }
    for name, value in expected.items():
        # A softmax and two layers of 16 units.
        numerics.assert_close(metrics[name], value, terms=41 * 7, depth=8, name=name)
    with_unmasked = -np.log(predicted["token_probabilities"]).mean()
    numerics.assert_far(metrics["token_loss"], with_unmasked, terms=41 * 7, depth=8)
