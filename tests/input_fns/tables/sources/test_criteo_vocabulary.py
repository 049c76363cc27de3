"""Counts of categories are added in ranges of their values, as by NumPy."""

import numpy as np
import pytest

from input_fns import DataError
from input_fns.convert.shared_array import SharedArray
from input_fns.core import memory
from input_fns.tables.sources import criteo_vocabulary


@pytest.fixture
def keys():
    """uint32 [500, 3]: all values, few, and none but missing ones."""
    random = np.random.default_rng(0)
    pool = random.integers(0, 2**32, 200, dtype=np.uint32)
    keys = random.choice(pool, [500, 3])
    keys[:, 1] %= 7
    return keys


def write(folder, keys, is_missing):
    """Writes the counts of rows in three files; returns their paths and the sizes."""
    paths, sizes = [], 0
    for rows in (slice(0, 1), slice(1, 300), slice(300, 500)):
        paths.append(str(folder / f"{rows.start}"))
        blocks = np.array_split(keys[rows], 2), np.array_split(is_missing[rows], 2)
        sizes = sizes + criteo_vocabulary.write_counts(paths[-1], *blocks)
    return SharedArray.write(str(folder), [np.array(paths, "S")]), sizes


@pytest.mark.parametrize("values", [1, 40, 10**6])
def test_ranges_of_all_files_together_have_all_counts(tmp_path, monkeypatch, keys, values):
    monkeypatch.setattr(criteo_vocabulary, "_RANGE_VALUES", values)
    is_missing = np.random.default_rng(1).random(keys.shape) < [0.1, 0.1, 1]
    paths, sizes = write(tmp_path, keys, is_missing)
    parts = criteo_vocabulary.cut_ranges(sizes)
    assert (len(parts) > 3) == (values < 10**6)
    for category in range(3):
        found = [
            criteo_vocabulary.add_counts(paths, 3, 2, part)
            for part in parts
            if part.category == category
        ]
        column = keys[~is_missing[:, category], category]
        expected, counts = np.unique(column, return_counts=True)
        added, totals, numbers = zip(*found)
        assert np.concatenate(added).tolist() == expected[counts > 1].tolist()
        assert np.concatenate(totals).tolist() == counts[counts > 1].tolist()
        assert sum(numbers) == len(expected)


def test_more_values_than_memory_holds(tmp_path, monkeypatch, keys):
    paths, sizes = write(tmp_path, keys, np.zeros(keys.shape, bool))
    monkeypatch.setattr(memory, "available_bytes", lambda: 100)
    with pytest.raises(
        DataError, match=r"distinct values of a category fill .* Convert fewer rows"
    ):
        criteo_vocabulary.add_counts(paths, 3, 1, criteo_vocabulary.cut_ranges(sizes)[0])
