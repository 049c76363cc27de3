"""Vocabularies of the categories of a click log: the row of the table of each value."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from input_fns import DataError
from input_fns.core import memory

MISSING = -1  # key of a missing category
_K2 = 0x9AE16A3B2F90404F  # of FarmHash


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Rows of the table of one category.

    Attributes:
      keys: int64 `[size]`, increasing.
      rows: int64 `[size]`, the row of each key, from 1.
      hash_rows: rows behind these, for all other values.
    """

    keys: np.ndarray
    rows: np.ndarray
    hash_rows: int

    @property
    def num_rows(self) -> int:
        """Number of rows before the hashed ones: 1 for a missing value, then the vocabulary."""
        return 1 + len(self.keys)

    def values(self) -> list[str]:
        """Returns the value of each row before the hashed ones, "" for the first."""
        return ["", *(f"{key:08x}" for key in self.keys[np.argsort(self.rows)])]


def choose_rows(
    keys: np.ndarray, counts: np.ndarray, min_frequency: int, hash_rows: int, max_rows: int
) -> Vocabulary:
    """Returns the vocabulary of a category: its most frequent values.

    Args:
      keys: int64 `[size]`, distinct, increasing; may have `MISSING`.
      counts: int64 `[size]`, number of rows with each.
      min_frequency: lowest count of a value of the vocabulary.
      hash_rows: most rows of other values; at least one is for values that are not in `keys`.
      max_rows: most rows of the table.
    """
    keys, counts = keys[keys != MISSING], counts[keys != MISSING]
    # Stable: values with the same count are in increasing order.
    order = np.argsort(-counts, kind="stable")[: max_rows - 1 - hash_rows]
    order = order[counts[order] >= min_frequency]
    chosen = keys[order]
    increasing = np.argsort(chosen)
    num_others = len(keys) - len(chosen)
    return Vocabulary(chosen[increasing], 1 + increasing, min(max(num_others, 1), hash_rows))


def find_rows(keys: np.ndarray, vocabularies: Sequence[Vocabulary]) -> np.ndarray:
    """Returns the row of the table of each key, int64 `[n, categories]`."""
    rows, is_other = np.zeros_like(keys), np.zeros(keys.shape, bool)
    for i, found in enumerate(vocabularies):
        column = keys[:, i]
        place = np.searchsorted(found.keys, column)
        place = np.minimum(place, max(0, len(found.keys) - 1))
        is_known = found.keys[place] == column if len(found.keys) else np.zeros(len(keys), bool)
        rows[is_known, i] = found.rows[place[is_known]]
        is_other[:, i] = ~is_known & (column != MISSING)
    others, inverse = np.unique(keys[is_other], return_inverse=True)
    if len(others):
        sizes = np.array([[found.hash_rows, found.num_rows] for found in vocabularies])
        sizes = sizes[np.nonzero(is_other)[1]]
        rows[is_other] = sizes[:, 1] + _hashes(others)[inverse] % sizes[:, 0]
    return rows


def _hashes(keys):
    """Returns the hash of each value, int64, as a SavedModel computes it.

    That is `tf.strings.to_hash_bucket_fast(value, 2**63 - 1)`: FarmHash's Fingerprint64 of 8 bytes
    (github.com/google/farmhash, `HashLen0to16`).
    """
    text = "".join([f"{key:08x}" for key in keys.tolist()]).encode()
    data, mul = np.frombuffer(text, "<u8").astype(np.uint64), np.uint64((_K2 + 16) % 2**64)
    first = data + np.uint64(_K2)
    one = _rotated(data, 37) * mul + first
    two = (_rotated(first, 25) + data) * mul
    found = _mixed((one ^ two) * mul)
    found = _mixed((two ^ found) * mul) * mul
    return (found % np.uint64(2**63 - 1)).astype(np.int64)


def _rotated(values, shift):
    return values >> np.uint64(shift) | values << np.uint64(64 - shift)


def _mixed(values):
    return values ^ values >> np.uint64(47)


class Counter:
    """Counts the values of each category; memory holds the distinct ones."""

    def __init__(self, num_categories: int):
        """Starts without rows."""
        self._keys = [np.zeros(0, np.uint32) for _ in range(num_categories)]
        self._counts = [np.zeros(0, np.uint32) for _ in range(num_categories)]
        self._waiting, self._num_waiting = [], 0

    def add(self, keys: np.ndarray) -> None:
        """Counts int64 `[n, 26]`."""
        self._waiting.append(keys)
        self._num_waiting += len(keys)
        # As many as are known already: each merge doubles at most, so a value is copied rarely.
        if self._num_waiting * len(self._keys) >= max(2**22, sum(map(len, self._keys))):
            self._merge()

    def totals(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields distinct keys and their counts, int64 `[size]`, for each category."""
        self._merge()
        for keys, counts in zip(self._keys, self._counts):
            yield keys.astype(np.int64), counts.astype(np.int64)

    def _merge(self):
        waiting = np.concatenate([np.zeros([0, len(self._keys)], np.int64), *self._waiting])
        self._waiting, self._num_waiting = [], 0
        for i, column in enumerate(waiting.T):
            new, counts = np.unique(column[column != MISSING], return_counts=True)
            keys = np.concatenate([self._keys[i], new.astype(np.uint32)])
            counts = np.concatenate([self._counts[i], counts.astype(np.uint32)])
            self._keys[i], inverse = np.unique(keys, return_inverse=True)
            self._counts[i] = np.bincount(inverse, counts, len(self._keys[i])).astype(np.uint32)
        num_bytes = 8 * sum(map(len, self._keys))
        if num_bytes > memory.available_bytes() // 2:
            raise DataError(
                f"the distinct values of the categories fill {num_bytes} bytes, over half of the "
                "available memory. Convert fewer rows, or use a machine with more memory"
            )
