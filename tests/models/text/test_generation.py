"""Sampling: which tokens may be chosen, how often, and that seeds repeat."""

import numpy as np
import pytest
import tensorflow as tf

from models.model import ModelError
from models.text import generation

VOCAB = 11
LOGITS = np.random.default_rng(3).normal(size=VOCAB).astype(np.float32) * 2
# The 0.9999 quantiles of chi-square with 1 to 10 degrees of freedom: scipy.stats.chi2.ppf.
CHI_SQUARE = [15.1, 18.4, 21.1, 23.5, 25.7, 27.9, 29.9, 31.8, 33.7, 35.6]
DRAWS = 20_000


def params(**changes):
    return {**generation.default_params(), "num_tokens": VOCAB, "vocab_size": VOCAB, **changes}


def draw(session, logits=LOGITS, count=DRAWS, seen=(), **changes):
    """Tokens that `count` rows with these logits choose."""
    hyperparameters = params(end_of_text=0, **changes)
    rows = tf.tile(tf.constant(logits)[tf.newaxis], [count, 1])
    rows = generation.without_padding(rows, hyperparameters)
    is_seen = tf.tile(tf.constant(np.isin(range(len(logits)), seen))[tf.newaxis], [count, 1])
    seeds, position = tf.range(count), tf.fill([count], 5)
    return session.run(generation.next_token(rows, seeds, position, is_seen, hyperparameters))


def softmax(logits):
    powers = np.exp(np.float64(logits) - np.max(logits))
    return powers / powers.sum()


def chi_square(tokens, probabilities):
    """Pearson's statistic divided by the quantile for its degrees of freedom."""
    counts = np.bincount(tokens, minlength=len(probabilities))
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    expected = probabilities[possible] * len(tokens)
    statistic = ((counts[possible] - expected) ** 2 / expected).sum()
    return statistic / CHI_SQUARE[possible.sum() - 2]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.5])
def test_frequencies_are_those_of_the_softmax(session, temperature):
    tokens = draw(session, temperature=temperature)
    assert chi_square(tokens, softmax(LOGITS / temperature)) < 1


def test_frequencies_of_another_temperature_differ(session):
    assert chi_square(draw(session, temperature=0.9), softmax(LOGITS)) > 2


def top_k(logits, k):
    """Probabilities of the k most probable tokens."""
    kept = np.argsort(-logits, kind="stable")[:k]
    return softmax(np.where(np.isin(range(len(logits)), kept), logits, -np.inf))


def top_p(logits, p):
    """Probabilities of the fewest tokens whose probabilities sum to p."""
    order = np.argsort(-logits, kind="stable")
    total = np.cumsum(softmax(logits)[order])
    kept = order[: np.searchsorted(total, p) + 1]
    return softmax(np.where(np.isin(range(len(logits)), kept), logits, -np.inf))


@pytest.mark.parametrize("k", [2, 5])
def test_top_k(session, k):
    assert chi_square(draw(session, top_k=k), top_k(LOGITS, k)) < 1


@pytest.mark.parametrize("p", [0.5, 0.9])
def test_top_p(session, p):
    assert chi_square(draw(session, top_p=p), top_p(LOGITS, p)) < 1


def test_sets_are_exact_for_many_logits(session):
    rows = np.random.default_rng(5).normal(size=[300, VOCAB]).astype(np.float32) * 3
    rows[:50] = np.round(rows[:50])  # with equal ones
    scores, tokens = session.run(generation.candidates(tf.constant(rows), params(top_k=4)))
    for row, order in zip(rows, tokens):
        assert order.tolist() == np.argsort(-row, kind="stable")[:4].tolist()
    assert np.isfinite(scores).all()
    scores, tokens = session.run(generation.candidates(tf.constant(rows), params(top_p=0.8)))
    for row, kept, order in zip(rows, np.isfinite(scores), tokens):
        assert set(order[kept]) == set(np.flatnonzero(top_p(row, 0.8)))


def test_greedy_decoding_takes_the_most_probable_token(session):
    assert set(draw(session, count=3, temperature=0.0)) == {LOGITS.argmax()}


@pytest.mark.parametrize("changes", [{"temperature": 0.0}, {"temperature": 5.0}, {"top_p": 0.9999}])
def test_rows_that_pad_the_embedding_are_never_chosen(session, changes):
    logits = np.concatenate([LOGITS, [50.0, 40.0]]).astype(np.float32)
    assert draw(session, logits, count=2000, vocab_size=VOCAB + 2, **changes).max() < VOCAB


def test_repetition_penalty(session):
    best = [int(LOGITS.argmax()), int(LOGITS.argmin())]
    expected = LOGITS.copy()
    expected[best] = [LOGITS[best[0]] / 1.5, LOGITS[best[1]] * 1.5]
    tokens = draw(session, seen=best, repetition_penalty=1.5)
    assert chi_square(tokens, softmax(expected)) < 1


def test_samples_are_a_function_of_the_seed_and_the_position(session):
    flat = tf.zeros([4, VOCAB])
    seeds, positions = tf.constant([1, 2, 1, 1]), tf.constant([5, 5, 5, 6])
    tokens = [
        generation.next_token(flat, seeds + 10 * i, positions, None, params()) for i in range(9)
    ]
    found = np.array(session.run(tokens))
    np.testing.assert_array_equal(found[:, 0], found[:, 2])
    assert (found[:, 0] != found[:, 1]).any()
    assert (found[:, 0] != found[:, 3]).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"top_p": 0.0}, "top_p=0.0 must be above 0"),
        ({"top_k": 12}, "top_k=12 must be at most 11"),
        ({"stop_tokens": (11,)}, "ids of tokens, from 0 to 10"),
        ({"repetition_penalty": 0.0}, "repetition_penalty=0.0"),
    ],
)
def test_invalid_hyperparameters(changes, message):
    with pytest.raises(ModelError) as error:
        generation.check_params(params(end_of_text=0, **changes))
    assert message in str(error.value)
