"""Greedy and prefix beam search, against TensorFlow's decoders and sums over all alignments."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from models.speech import ctc_decoding

VOCAB, FRAMES, TOKENS, BATCH = 4, 6, 5, 13
NUM_FRAMES = np.random.default_rng(1).integers(0, FRAMES + 1, BATCH).astype(np.int32)
LOGITS = np.random.default_rng(0).normal(size=[BATCH, FRAMES, VOCAB]).astype(np.float32)
EVERY = 400  # beams that lose no prefix: there are 3 + 3 ** 2 + ... + 3 ** 5 and the empty one


def decode(function, *arguments, logits=LOGITS, num_frames=NUM_FRAMES, jit_compile=False):
    @tf.function(jit_compile=jit_compile, autograph=False)
    def compute(logits, num_frames):
        return function(logits, num_frames, *arguments)

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(compute(tf.constant(logits), tf.constant(num_frames)))


def collapse(alignment):
    """Returns a string without repetitions and blanks, padded."""
    tokens = [token for token, _ in itertools.groupby(alignment) if token]
    return tuple(tokens + [0] * (TOKENS - len(tokens)))


def brute_force():
    """Log probability of each string of at most TOKENS tokens, summed over its alignments."""
    wide = LOGITS.astype(np.float64)
    log_probs = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    for row, count in zip(log_probs, NUM_FRAMES):
        totals = collections.defaultdict(float)
        for alignment in itertools.product(range(VOCAB), repeat=int(count)):
            text = collapse(alignment)
            if len(text) == TOKENS:
                totals[text] += np.exp(row[np.arange(count), list(alignment)].sum())
        yield totals


def by_tensorflow(decoder, **options):
    """Tokens and log probabilities by a decoder of TensorFlow, whose blank is the last class."""
    moved = np.concatenate([LOGITS[..., 1:], LOGITS[..., :1]], axis=-1).transpose([1, 0, 2])
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        log_probs = tf.nn.log_softmax(tf.constant(moved))
        (paths,), scores = decoder(log_probs, tf.constant(NUM_FRAMES), **options)
        paths = tf.sparse.to_dense(paths, -1)
        paths = tf.pad(paths, [[0, 0], [0, TOKENS]], constant_values=-1)[:, :TOKENS]
        tokens, scores = session.run([paths + 1, scores])
    return tokens, scores[:, 0]


def test_greedy_equals_tensorflow():
    tokens, scores = decode(ctc_decoding.greedy, TOKENS)
    expected, negative = by_tensorflow(tf.nn.ctc_greedy_decoder)
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_allclose(scores, -negative, rtol=1e-5)


def test_a_full_beam_search_equals_the_sum_over_all_alignments():
    tokens, scores = decode(ctc_decoding.beam_search, TOKENS, EVERY)
    for found, score, totals in zip(tokens, scores, brute_force()):
        best = max(totals, key=totals.get)
        assert tuple(found) == best
        np.testing.assert_allclose(score, np.log(totals[best]), rtol=1e-5)


def search_with_dicts(probs, beam_width):
    """Prefix beam search by dicts of prefixes (Hannun et al. 2014, algorithm 1)."""
    beams = {(): (1.0, 0.0)}
    for row in probs:
        new = collections.defaultdict(lambda: [0.0, 0.0])
        for prefix, (blank, token) in beams.items():
            new[prefix][0] += (blank + token) * row[0]
            if prefix:
                new[prefix][1] += token * row[prefix[-1]]
            for added in range(1, VOCAB) if len(prefix) < TOKENS else ():
                before = blank if prefix[-1:] == (added,) else blank + token
                new[(*prefix, added)][1] += before * row[added]
        ranked = sorted(new.items(), key=lambda item: -sum(item[1]))
        beams = dict(ranked[:beam_width])
    return max(((sum(both), prefix) for prefix, both in beams.items()))


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("beam_width", [2, 3, 10])
def test_a_beam_search_equals_two_others(beam_width):
    tokens, scores = decode(ctc_decoding.beam_search, TOKENS, beam_width)
    powers = np.exp(LOGITS.astype(np.float64))
    probs = powers / powers.sum(-1, keepdims=True)
    for i, (row, count) in enumerate(zip(probs, NUM_FRAMES)):
        total, prefix = search_with_dicts(row[:count], beam_width)
        assert tuple(tokens[i][tokens[i] > 0]) == prefix
        np.testing.assert_allclose(scores[i], np.log(total), rtol=1e-5, atol=1e-6)
    # TensorFlow's scores differ: beams that it drops and finds again keep their probabilities.
    options = {"beam_width": beam_width, "top_paths": 1, "merge_repeated": False}
    expected, _ = by_tensorflow(tf.compat.v1.nn.ctc_beam_search_decoder, **options)
    np.testing.assert_array_equal(tokens, expected)


def test_a_beam_search_sums_alignments_that_greedy_decoding_does_not():
    # The best alignment is two blanks, 0.36; those of token 1 have 0.24 + 0.24 + 0.16.
    logits = np.log(np.array([[[0.6, 0.4], [0.6, 0.4]]], np.float32))
    case = {"logits": logits, "num_frames": np.array([2], np.int32)}
    assert decode(ctc_decoding.greedy, 2, **case)[0].tolist() == [[0, 0]]
    tokens, score = decode(ctc_decoding.beam_search, 2, 3, **case)
    assert tokens.tolist() == [[1, 0]]
    np.testing.assert_allclose(np.exp(score), [0.64], rtol=1e-6)


def test_a_prefix_has_at_most_max_tokens():
    logits = np.zeros([1, 5, 4], np.float32)
    logits[0, np.arange(5), [1, 2, 3, 1, 2]] = 9
    case = {"logits": logits, "num_frames": np.array([5], np.int32)}
    for search in ([ctc_decoding.greedy, 3], [ctc_decoding.beam_search, 3, 2]):
        assert decode(*search, **case)[0].shape == (1, 3)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    "search", [[ctc_decoding.greedy, TOKENS], [ctc_decoding.beam_search, TOKENS, 3]]
)
def test_xla_compiles_the_decoders(search):
    tokens, scores = decode(*search, jit_compile=True)
    expected_tokens, expected_scores = decode(*search)
    np.testing.assert_array_equal(tokens, expected_tokens)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)


def test_memory_of_a_beam_search_is_linear_in_beams_times_vocabulary(graph):
    batch, frames, vocab, beams, tokens = 2, 3, 500, 17, 5
    logits = tf.zeros([batch, frames, vocab])
    num_frames = tf.fill([batch], frames)

    @tf.function(autograph=False)
    def search():
        return ctc_decoding.beam_search(logits, num_frames, tokens, beams)

    search()
    functions = graph.as_graph_def(add_shapes=True).library.function
    sizes = [
        np.prod([max(dimension.size, 1) for dimension in shape.dim])
        for function in functions
        for node in function.node_def
        for shape in node.attr["_output_shapes"].list.shape
    ]

    assert max(sizes) == batch * beams * (vocab + 1)
