"""Decoding apart from inference: next tokens in training, samples in prediction and export."""

import numpy as np
import pytest

from tests.contract.language_model.data import (
    NUM_SPECIAL,
    PADDING,
    PROMPT_LENGTH,
    make_pipeline,
)

CASE, PROMPTS = "language_model", "--eval_split=prompts"


@pytest.fixture
def prompts():
    """The features of the split "prompts"."""
    return make_pipeline(None).splits["prompts"][0]


def test_prompts_are_continued(predict, prompts):
    tokens = predict(CASE, PROMPTS)["tokens"]
    np.testing.assert_array_equal(tokens[:, :PROMPT_LENGTH], prompts["tokens"][:, :PROMPT_LENGTH])
    assert tokens.min() >= NUM_SPECIAL
    counts_up = np.diff(tokens[:, PROMPT_LENGTH - 1 :]) == 1
    assert 0.5 < counts_up.mean() < 1  # it has learned to count, and samples


@pytest.mark.slow
def test_host_metrics_of_an_evaluation_get_samples(evaluate, predict):
    features, _ = make_pipeline(None).splits["test"]
    is_sampled = features["tokens"][:, 1:] == PADDING
    expected = (np.diff(predict(CASE)["tokens"]) == 1)[is_sampled].mean()
    assert evaluate(CASE)["fluency"] == pytest.approx(expected)


@pytest.mark.slow
def test_samples_are_those_of_the_seed_at_any_batch_size(predict):
    found = predict(CASE, PROMPTS)["tokens"]
    again = predict(CASE, PROMPTS, "--predict_batch_size=5")["tokens"]
    np.testing.assert_array_equal(again, found)


@pytest.mark.slow
def test_a_low_temperature_takes_the_most_probable_token(predict):
    greedy = predict(CASE, PROMPTS, "--params=temperature=1e-3")["tokens"]
    counts_up = np.diff(greedy[:, PROMPT_LENGTH - 1 :]) == 1
    sampled = np.diff(predict(CASE, PROMPTS)["tokens"][:, PROMPT_LENGTH - 1 :]) == 1
    assert counts_up.mean() > sampled.mean()
