"""Fréchet distance of features, against SciPy's matrix square root and closed forms."""

import numpy as np
import pytest

from models.generation import frechet


def features(size, columns, seed):
    random = np.random.default_rng(seed)
    return random.normal(size=[size, columns]) @ random.normal(size=[columns, columns]) + seed


def distance(first, second):
    return frechet.distance(frechet.moments(first), frechet.moments(second))


def test_it_is_that_of_the_matrix_square_root():
    linalg = pytest.importorskip("scipy.linalg", reason="the oracle is SciPy")
    first, second = features(97, 7, seed=1), features(131, 7, seed=2)
    covariances = [np.cov(values.T) for values in (first, second)]
    shift = np.sum((first.mean(0) - second.mean(0)) ** 2)
    root = linalg.sqrtm(covariances[0] @ covariances[1]).real
    expected = shift + np.trace(covariances[0] + covariances[1] - 2 * root)
    assert distance(first, second) == pytest.approx(expected, rel=1e-9)
    assert expected > 10


def test_of_independent_columns_it_is_that_of_means_and_deviations():
    means, deviations = np.array([[1.0, -2.0], [3.0, 5.0]]), np.array([[2.0, 0.5], [1.0, 3.0]])
    moments = [(mean, np.diag(deviation**2)) for mean, deviation in zip(means, deviations)]
    expected = np.sum((means[0] - means[1]) ** 2) + np.sum((deviations[0] - deviations[1]) ** 2)
    assert frechet.distance(*moments) == pytest.approx(expected, rel=1e-12)


def test_equal_features_have_no_distance_though_their_covariance_is_singular():
    few = features(5, 12, seed=3)  # fewer examples than columns
    largest = np.trace(np.cov(few.T))
    # Roots of eigenvalues that are 0: each is at most the root of the unit roundoff.
    assert abs(distance(few, few)) < 12 * np.sqrt(np.finfo(float).eps) * largest


def test_float32_features_far_from_0_keep_their_covariance():
    near = np.random.default_rng(1).normal(size=[1000, 3]).astype(np.float32)
    far = near + np.float32(1000)
    assert distance(near, far) == pytest.approx(3e6, rel=1e-4)
    assert distance(far, far + 1) == pytest.approx(3, rel=1e-3)
