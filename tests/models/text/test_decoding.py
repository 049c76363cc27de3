"""Greedy and beam search, equal to slow ones in plain Python."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from common.constants import EOS, PAD
from models.text import decoding
from tests import numerics
from tests.marks import slow

BATCH, VOCAB, MAX_LENGTH = 5, 9, 7
BEFORE = np.random.default_rng(9).normal(size=[VOCAB, VOCAB]).astype(np.float32)


@pytest.fixture(scope="module", params=[(0, 0), (3, 30), slow((1, 0)), slow((2, 5))])
def table(request):
    """Logits of the next token by sentence, position and last token."""
    seed, padding = request.param
    random = np.random.default_rng(seed)
    logits = random.normal(size=[BATCH, MAX_LENGTH, VOCAB, VOCAB], scale=2).astype(np.float32)
    logits[..., EOS] += np.linspace(-4, 3, MAX_LENGTH)[:, np.newaxis]
    logits[0, ..., EOS] -= 20  # this one never ends
    logits[..., PAD] += padding  # the most probable token, or one like the others
    return logits


def search(table, beam_size, length_penalty):
    """Ours. The logits also depend on the token before the last, which only the cache knows."""
    params = {"beam_size": beam_size, "length_penalty": length_penalty}
    _, max_length, vocab_size, _ = table.shape

    def step(tokens, position, before):
        logits = tf.gather(tf.gather(table, position, axis=1), tokens, batch_dims=1)
        return logits + tf.gather(BEFORE[:vocab_size, :vocab_size], before), tokens

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        before = tf.fill([BATCH, beam_size], EOS)
        return session.run(decoding.search(step, before, max_length, params))


def log_prob(table, sentence, target):
    total = 0.0
    for position, token in enumerate(target):
        before, last = [EOS, EOS, *target][position : position + 2]
        row = table[sentence, position, last].astype(np.float64)
        row += BEFORE[before, : len(row)]
        total += row[token] - np.log(np.exp(row).sum())
    return total


def assert_scores(found, expected, table):
    """Sums of a log-softmax of six operations a token, divided by a power of a quotient."""
    numerics.assert_close(
        found, expected, terms=VOCAB, depth=6 + MAX_LENGTH + 3, magnitude=np.abs(table).max()
    )


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def slow_beam_search(table, sentence, beams, alpha):
    """Beam search as it is told: hypotheses in lists, nothing shared."""
    live, ended = [((), 0.0)], []
    for _ in range(MAX_LENGTH):
        grown = sorted(
            (
                ((*target, token), log_prob(table, sentence, (*target, token)))
                for target, _ in live
                for token in range(VOCAB)
                if token != PAD
            ),
            key=lambda pair: -pair[1],
        )[: 2 * beams]
        ended += [
            (target, value / penalty(len(target), alpha))
            for target, value in grown
            if target[-1] == EOS
        ]
        ended = sorted(ended, key=lambda pair: -pair[1])[:beams]
        live = [pair for pair in grown if pair[0][-1] != EOS][:beams]
    if ended:
        return ended[0]
    target, value = live[0]
    return target, value / penalty(MAX_LENGTH, alpha)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("beams", [2, 3, 4])
def test_beam_search_is_the_slow_one(table, beams, alpha):
    found = search(table, beams, alpha)
    assert found["target"].shape == (BATCH, MAX_LENGTH)
    for sentence in range(BATCH):
        target, score = slow_beam_search(table, sentence, beams, alpha)
        padded = [*target, *[PAD] * (MAX_LENGTH - len(target))]
        assert found["target"][sentence].tolist() == padded
        assert_scores(found["score"][sentence], score, table)


def test_greedy_search_takes_the_best_token_until_the_end(table):
    found = search(table, 1, 0.6)
    for sentence in range(BATCH):
        target = []
        while len(target) < MAX_LENGTH and EOS not in target:
            before, last = [EOS, EOS, *target][-2:]
            logits = table[sentence, len(target), last] + BEFORE[before]
            logits[PAD] = -np.inf
            target.append(int(logits.argmax()))
        expected = log_prob(table, sentence, target) / penalty(len(target), 0.6)
        assert found["target"][sentence, : len(target)].tolist() == target
        assert not found["target"][sentence, len(target) :].any()
        assert_scores(found["score"][sentence], expected, table)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_beams_for_every_target_find_the_best(table, alpha):
    length, vocab = 4, 4
    small = table[:, :length, :vocab, :vocab]
    # Of targets of the whole length, whose last token alone may end them, there are 3 * 2 ** 3; a
    # search looks at twice as many as it has beams.
    others = [token for token in range(vocab) if token not in (EOS, PAD)]
    beams = (len(others) + 1) * len(others) ** (length - 1) // 2
    found = search(small, beams, alpha)
    targets = [
        (*tokens, EOS)
        for count in range(length)
        for tokens in itertools.product(others, repeat=count)
    ]
    for sentence in range(BATCH):
        scores = {
            target: log_prob(small, sentence, target) / penalty(len(target), alpha)
            for target in targets
        }
        best = max(scores, key=scores.get)
        assert found["target"][sentence].tolist() == [*best, *[PAD] * (length - len(best))]
        assert_scores(found["score"][sentence], scores[best], small)


def test_a_target_that_cannot_be_is_not_one_that_ended(table):
    """`EOS` is impossible, and the length penalty is large."""
    never_ends = table[:, :, :4, :4].copy()
    never_ends[..., EOS] = -1e30
    found = search(never_ends, 2, 9.0)  # a penalty of 2 ** 9 for the longest target
    assert not (found["target"] == EOS).any()
    assert (found["target"] > EOS).all()
