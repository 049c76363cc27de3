"""A random order that takes no memory."""

import numpy as np
import pytest

from input_fns.convert.permutation import permuted


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000, 4097])
def test_each_number_has_one_place(size):
    places = permuted(np.arange(size), size, 5)
    assert sorted(places.tolist()) == list(range(size))
    some = permuted(np.arange(size // 3, size), size, 5)
    assert (some == places[size // 3 :]).all()


def test_the_order_is_random():
    size, seeds = 7, 1000
    places = np.array([permuted(np.arange(size), size, seed) for seed in range(seeds)])
    # Chi-squared of 36 degrees of freedom: mean 36, standard deviation 8.5.
    counts = np.array([np.bincount(places[:, i], minlength=size) for i in range(size)])
    assert ((counts - seeds / size) ** 2 / (seeds / size)).sum() < 36 + 5 * 8.5
    # Successive numbers of one permutation are not near each other: their mean distance is a third.
    far = np.abs(np.diff(permuted(np.arange(30_000), 30_000, 1).astype(float))).mean()
    assert abs(far / 30_000 - 1 / 3) < 0.01


def test_large_sizes_have_distinct_places():
    size = 2**40 + 7
    places = permuted(np.arange(size - 5000, size), size, 0)
    assert len(np.unique(places)) == 5000
    assert places.max() < size
