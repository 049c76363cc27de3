"""An array in a file is the array, wherever the file is."""

import os
import pickle

import numpy as np
import pytest

from input_fns.convert.fingerprint import Fingerprints
from input_fns.convert.shared_array import SharedArray, SharedRows

BLOCKS = np.arange(14, dtype="<u4").reshape(7, 2), np.full([3, 2], 5, "<u4")


def test_blocks_are_joined_and_a_pickle_has_no_content(tmp_path):
    shared = SharedArray.write(str(tmp_path), BLOCKS)
    assert len(pickle.dumps(shared)) < 300
    read = pickle.loads(pickle.dumps(shared)).array
    np.testing.assert_array_equal(read, np.concatenate(BLOCKS))
    assert (read.shape, read.dtype, read.flags.writeable) == ((10, 2), np.dtype("<u4"), False)


def test_some_elements_are_read_without_a_map(tmp_path):
    shared = SharedArray.write(str(tmp_path), BLOCKS)
    np.testing.assert_array_equal(shared.read(5, 8), np.concatenate(BLOCKS)[5:8])
    assert shared.read(3, 3).shape == (0, 2)


def test_rows_have_different_lengths_and_are_read_in_any_order(tmp_path):
    values = SharedArray.write(str(tmp_path), [np.arange(9, dtype="<u2")])
    rows = SharedRows.of(values, np.array([2, 0, 4, 3]))
    assert len(rows) == 4
    np.testing.assert_array_equal(rows[2:].joined(), [2, 3, 4, 5, 6, 7, 8])
    np.testing.assert_array_equal(rows[np.array([3, 1, 0])].joined(), [6, 7, 8, 0, 1])
    assert len(pickle.dumps(rows[1:3])) < 700


def test_an_array_without_elements(tmp_path):
    shared = SharedArray.write(str(tmp_path), [np.zeros([0, 3], "<f4")])
    assert shared.array.shape == (0, 3)


def test_the_array_stays_when_its_folder_is_removed(tmp_path):
    shared = SharedArray.write(str(tmp_path), BLOCKS)
    os.unlink(shared.path)
    assert shared.array[9, 1] == 5


@pytest.mark.parametrize(("values", "is_equal"), [([1, 2], True), ([1, 3], False)])
def test_the_fingerprint_is_that_of_the_content_and_not_of_the_path(tmp_path, values, is_equal):
    first = SharedArray.write(str(tmp_path), [np.array([1, 2])])
    other = SharedArray.write(str(tmp_path), [np.array(values)])
    of = Fingerprints("").of
    assert (of(first) == of(other)) == is_equal
