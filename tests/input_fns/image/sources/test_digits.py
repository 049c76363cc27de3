"""The digits that come with the package."""

import numpy as np
from sklearn.datasets import load_digits

from input_fns.convert.options import Options
from input_fns.image.sources import digits


def test_they_are_those_of_scikit_learn():
    splits = digits.read(Options("digits")).splits
    assert splits["train"].images.shape == (1438, 8, 8, 1)
    assert splits["test"].images.shape == (359, 8, 8, 1)
    theirs = load_digits()
    is_test = np.arange(1797) % 5 == 4
    for name, rows in (("train", ~is_test), ("test", is_test)):
        np.testing.assert_array_equal(splits[name].images[..., 0], theirs.images[rows])
        np.testing.assert_array_equal(splits[name].labels, theirs.target[rows])


def test_every_class_is_in_every_split():
    for split in digits.read(Options("digits")).splits.values():
        assert np.bincount(split.labels).min() > 20
