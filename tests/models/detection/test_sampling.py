"""Random samples: their sizes, and that they depend on the seed of the example only."""

import numpy as np
import tensorflow as tf

from models.detection import sampling

N = 50


def uniform(session, seeds, count=1000, stream=1):
    features = {"dropout_seed": tf.constant(seeds, tf.int32)}
    return session.run(sampling.uniform(features, tf.range(count), stream))


def test_numbers_are_uniform_and_uncorrelated(session):
    seeds = [[i, 7 * i + 3] for i in range(40)]
    found = uniform(session, seeds)
    assert found.min() >= 0
    assert found.max() < 1
    # Of 40,000 numbers: 6 standard deviations of the mean, and of a tenth's share.
    assert abs(found.mean() - 0.5) < 6 * np.sqrt(1 / 12 / 40_000)
    shares = np.histogram(found, 10, (0, 1))[0] / found.size
    assert np.abs(shares - 0.1).max() < 6 * np.sqrt(0.09 / 40_000)
    between = np.corrcoef(found)[np.triu_indices(40, 1)]
    along = np.corrcoef(found.T)[np.triu_indices(100, 1)]
    assert np.abs(between).max() < 6 / np.sqrt(1000)
    assert np.abs(along).max() < 6 / np.sqrt(40)


def test_numbers_depend_on_seed_and_stream_and_not_on_the_batch(session):
    seeds = [[1, 2], [3, 4], [1, 5]]
    whole = uniform(session, seeds)
    np.testing.assert_array_equal(uniform(session, seeds[1:2]), whole[1:2])
    assert (whole[0] == whole[2]).mean() < 0.01
    assert (uniform(session, seeds, stream=2) == whole).mean() < 0.01


def test_numbers_depend_on_keys_and_not_on_their_places(session):
    features = {"dropout_seed": tf.constant([[1, 2], [3, 4]], tf.int32)}
    keys = np.array([[5, -1, 0], [0, 5, -1]], np.int32)
    first, second = session.run(sampling.uniform(features, tf.constant(keys), 1))
    one = session.run(sampling.uniform(features, tf.constant([0, 5, -1]), 1))
    np.testing.assert_array_equal(first, one[0][[1, 2, 0]])
    np.testing.assert_array_equal(second, one[1])


def sample(session, is_positive, is_negative, count, max_positives):
    numbers = tf.constant(np.random.default_rng(0).permutation(N)[np.newaxis] / N, tf.float32)
    tensors = (tf.constant(side[np.newaxis]) for side in (is_positive, is_negative))
    index, is_sampled = session.run(sampling.sample(*tensors, numbers, count, max_positives))
    return index[0][is_sampled[0]], is_sampled[0]


def test_negatives_fill_the_places_that_positives_leave(session):
    is_positive, is_negative = np.arange(N) < 3, np.arange(N) >= 10
    index, is_sampled = sample(session, is_positive, is_negative, 16, 8)
    assert is_sampled.all()
    assert sorted(index[:3].tolist()) == [0, 1, 2]  # first
    assert is_negative[index[3:]].all()
    assert len(set(index)) == 16


def test_positives_are_limited(session):
    is_positive = np.arange(N) < 30
    index, _ = sample(session, is_positive, ~is_positive, 16, 8)
    assert is_positive[index].sum() == 8
    assert is_positive[index[:8]].all()


def test_places_stay_free_without_enough_candidates(session):
    is_positive, is_negative = np.arange(N) < 2, np.arange(N) == 40
    index, is_sampled = sample(session, is_positive, is_negative, 16, 8)
    assert sorted(index.tolist()) == [0, 1, 40]
    assert is_sampled.tolist() == [True] * 3 + [False] * 13
