"""Beam search of continuations, equal to one in plain Python with the rules of transformers."""

import numpy as np
import pytest
import tensorflow as tf

from models.model import ModelError
from models.text import generation
from tests import numerics
from tests.marks import slow

BATCH, VOCAB, SIZE, END = 7, 9, 11, 8
LENGTHS = np.array([1, 4, 7, 10, 11, 2, 5], np.int32)
STOPS = (3, END)


@pytest.fixture(scope="module", params=[0, slow(1), slow(2)])
def table(request):
    """Logits of the next token, by row, position and the last two tokens."""
    random = np.random.default_rng(request.param)
    return random.normal(size=[BATCH, SIZE, VOCAB, VOCAB, VOCAB], scale=1.5).astype(np.float32)


@pytest.fixture(scope="module")
def prompts():
    return np.random.default_rng(9).integers(4, END, [BATCH, SIZE]).astype(np.int32)


def log_softmax(logits):
    logits = np.float64(logits)
    return logits - np.log(np.exp(logits).sum())


def expected(table, row, prompt, limit, beams, penalty, stops):
    """The best continuation and its log probabilities."""

    def log_probs(tokens):
        before, last = [0, *tokens][-2:]
        return log_softmax(table[row, len(tokens) - 1, before, last])

    def total(pair):
        return -sum(pair[1])

    def score(pair):
        return -sum(pair[1]) / len(pair[1]) ** penalty

    live, ended = [([], [])], []
    while live and len(prompt) + len(live[0][0]) < limit:
        grown = [
            ([*tokens, token], [*values, value])
            for tokens, values in live
            for token, value in enumerate(log_probs([*prompt, *tokens]))
        ]
        grown = sorted(grown, key=total)[: beams * (1 + len(stops))]
        ends = [t[-1] in stops or len(prompt) + len(t) == limit for t, _ in grown]
        ended += [pair for pair, end in zip(grown[:beams], ends) if end]
        ended = sorted(ended, key=score)[:beams]
        live = [pair for pair, end in zip(grown, ends) if not end][:beams]
        if len(ended) == beams and live and score(live[0]) >= score(ended[-1]):
            break
    return ended[0] if ended else ([], [])


def search(table, prompts, limits, **changes):
    """Ours. Only the cache knows the token before the last."""
    params = {
        **generation.default_params(), "vocab_size": VOCAB, "num_tokens": VOCAB,
        "end_of_text": END, "stop_tokens": STOPS[:1], **changes,
    }  # fmt: skip
    features = {
        "prompt": tf.constant(prompts),
        "prompt_length": tf.constant(LENGTHS),
        "max_tokens": tf.constant(limits),
        "seed": tf.zeros([BATCH], tf.int32),
    }

    def step(tokens, positions, caches):
        ((before, after),) = caches
        rows = tf.range(tf.shape(tokens)[0]) // params["beam_size"]
        before = before[:, 0, 0, :, 0]
        of_last = tf.gather(before, tf.maximum(positions - 1, 0), batch_dims=1)
        last = tf.where(positions > 0, of_last, 0)
        logits = tf.gather_nd(table, tf.stack([rows, positions, last, tokens], axis=1))
        is_new = tf.equal(tf.range(SIZE), positions[:, tf.newaxis])
        before = tf.where(is_new, tokens[:, tf.newaxis], before)
        return logits, [(tf.reshape(before, [-1, 1, 1, SIZE, 1]), after)]

    with tf.compat.v1.Session() as session:
        cache = tf.constant(prompts.reshape([BATCH, 1, 1, SIZE, 1]))
        found = generation.generate(
            step, [(cache, cache)], tf.zeros([BATCH, SIZE]), features, params
        )
        return session.run(found)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("beams", [2, 4])
def test_continuations_are_the_slow_ones(table, prompts, beams, penalty):
    limits = np.array([SIZE, SIZE, SIZE, SIZE, SIZE, 6, 5], np.int32)
    found = search(table, prompts, limits, beam_size=beams, length_penalty=penalty)
    lengths = []
    for row, (prompt, begin, limit) in enumerate(zip(prompts.tolist(), LENGTHS, limits)):
        tokens, values = expected(table, row, prompt[:begin], limit, beams, penalty, STOPS)
        whole = [*prompt[:begin], *tokens]
        assert found["tokens"][row].tolist() == [*whole, *[END] * (SIZE - len(whole))]
        assert found["length"][row] == len(whole)
        log_probs = np.zeros(SIZE)
        log_probs[begin : len(whole)] = values
        numerics.assert_close(found["log_probs"][row], log_probs, terms=VOCAB, depth=6)
        lengths.append(len(tokens))
    assert lengths[4] == lengths[6] == 0  # without room


def test_the_rules_matter(table, prompts):
    """The tables above tell the rules apart."""

    def tokens(**changes):
        arguments = {"beams": 4, "penalty": 1.0, "stops": STOPS, **changes}
        return [
            expected(table, row, prompts[row, :begin].tolist(), SIZE, **arguments)[0]
            for row, begin in enumerate(LENGTHS)
        ]

    assert tokens() != tokens(penalty=0.0)
    assert tokens() != tokens(beams=1)
    assert tokens() != tokens(stops=(END,))


def test_max_new_tokens(table, prompts):
    limits = np.full([BATCH], SIZE, np.int32)
    found = search(table, prompts, limits, beam_size=3, max_new_tokens=2)
    assert (found["length"] <= np.minimum(LENGTHS + 2, SIZE)).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"beam_size": 0}, "beam_size=0"), ({"length_penalty": -1.0}, "length_penalty=-1.0")],
)
def test_invalid_hyperparameters(changes, message):
    with pytest.raises(ModelError) as error:
        generation.check_params({**generation.default_params(), **changes})
    assert message in str(error.value)
