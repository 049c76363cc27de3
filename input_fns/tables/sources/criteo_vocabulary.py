"""Vocabularies of the categories of a click log: the row of the table of each value."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from common import files
from input_fns import DataError
from input_fns.convert.shared_array import SharedArray
from input_fns.core import memory

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_RANGES = np.arange(256, dtype=np.uint32) << np.uint32(24)  # the lowest key of each
_RANGE_VALUES = 2**22  # with 12 bytes and as many while they are added
_K2 = 0x9AE16A3B2F90404F  # of FarmHash


@dataclasses.dataclass(frozen=True)
class Vocabularies:
    """Rows of the tables of all categories. In `keys` and `rows` one category follows the other.

    Attributes:
      keys: uint32 `[total]`, those of a category increase.
      rows: int32 `[total]`, the row of each key, from 1.
      sizes: number of keys of each category.
      hash_rows: rows of each table behind these, for all other values.
    """

    keys: SharedArray
    rows: SharedArray
    sizes: tuple[int, ...]
    hash_rows: tuple[int, ...]

    @property
    def num_rows(self) -> tuple[int, ...]:
        """Number of rows before the hashed ones: 1 for a missing value, then the vocabulary."""
        return tuple(1 + size for size in self.sizes)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields keys and rows of each category."""
        ends = np.cumsum(self.sizes).tolist()
        for size, end in zip(self.sizes, ends):
            yield self.keys.array[end - size : end], self.rows.array[end - size : end]

    def as_text(self, names: Sequence[str]) -> bytes:
        """Returns a line for each row before the hashed ones: category, tab, and value or ""."""
        pieces = []
        for name, (keys, rows) in zip(names, self):
            start = np.frombuffer(f"{name}\t".encode(), np.uint8)
            lines = np.empty([len(keys), len(start) + 9], np.uint8)
            lines[:, : len(start)] = start
            lines[rows - 1, len(start) : -1] = _hex_digits(keys)
            lines[:, -1] = ord("\n")
            pieces += [f"{name}\t\n".encode(), lines.tobytes()]
        return b"".join(pieces)


def choose_rows(
    keys: np.ndarray, counts: np.ndarray, num_values: int, hash_rows: int, max_rows: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns the vocabulary of a category: its most frequent values.

    Args:
      keys: the frequent ones, uint32 `[size]`, distinct, increasing.
      counts: int64 `[size]`, number of rows with each.
      num_values: number of all values.
      hash_rows: most rows of other values; at least one is for values that no row has.
      max_rows: most rows of the table.

    Returns:
      Keys, rows and the number of hashed rows; see `Vocabularies`.
    """
    # Stable: values with the same count are in increasing order.
    chosen = keys[np.argsort(-counts, kind="stable")[: max_rows - 1 - hash_rows]]
    increasing = np.argsort(chosen)
    hashed = min(max(num_values - len(chosen), 1), hash_rows)
    return chosen[increasing], 1 + increasing.astype(np.int32), hashed


def find_rows(keys: np.ndarray, is_missing: np.ndarray, vocabularies: Vocabularies) -> np.ndarray:
    """Returns the row of the table of each key, int32 `[n, categories]`."""
    rows, is_other = np.zeros(keys.shape, np.int32), np.zeros(keys.shape, bool)
    for i, (known, rows_of_known) in enumerate(vocabularies):
        column = keys[:, i]
        if len(known):
            place = np.minimum(np.searchsorted(known, column), len(known) - 1)
            is_known = known[place] == column
            rows[:, i] = np.where(is_known, rows_of_known[place], 0)
        else:
            is_known = np.zeros(len(keys), bool)
        is_other[:, i] = ~is_known
    rows[is_missing] = 0
    is_other &= ~is_missing
    table = np.nonzero(is_other)[1]
    hash_rows, num_rows = np.array(vocabularies.hash_rows), np.array(vocabularies.num_rows)
    rows[is_other] = num_rows[table] + _hashes(keys[is_other]) % hash_rows[table]
    return rows


def _hex_digits(keys):
    """Returns the text of each value, uint8 `[n, 8]`."""
    return _HEX[keys[:, None] >> np.arange(28, -4, -4, dtype=np.uint32) & np.uint32(15)]


def _hashes(keys):
    """Returns the hash of each value, int64, as a SavedModel computes it.

    That is `tf.strings.to_hash_bucket_fast(value, 2**63 - 1)`: FarmHash's Fingerprint64 of 8 bytes
    (github.com/google/farmhash, `HashLen0to16`).
    """
    data, mul = _hex_digits(keys).view("<u8")[:, 0], np.uint64((_K2 + 16) % 2**64)
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


def write_counts(path: str, keys: Sequence[np.ndarray], is_missing: Sequence[np.ndarray]):
    """Writes how many rows have each value of each category.

    The file has, in uint32, where the keys of each category and of each of its 256 ranges begin,
    then all keys and all counts: one category follows the other, and keys increase.

    Args:
      path: the file.
      keys: uint32 `[n, categories]`, in blocks.
      is_missing: bool, likewise.

    Returns:
      The number of values of each category, int64 `[categories]`.
    """
    keys, is_present = np.concatenate(keys), ~np.concatenate(is_missing)
    found = [
        np.unique(column[is_there], return_counts=True)
        for column, is_there in zip(keys.T, is_present.T)
    ]
    sizes = np.array([len(values) for values, _ in found])
    begins = np.cumsum([0, *sizes[:-1]])
    ranges = [np.append(np.searchsorted(values, _RANGES), len(values)) for values, _ in found]
    with files.open_bytes(path, "wb") as file:
        for values in itertools.chain([begins[:, None] + ranges], *zip(*found)):
            file.write(values.astype("<u4").tobytes())
    return sizes


def _read_counts(path, category, begin, end, num_categories):
    """Returns keys, increasing, and counts of some of the ranges of a category, uint32 `[size]`."""

    def read(file, first, size):
        file.seek(4 * first)
        return np.frombuffer(file.read(4 * size), "<u4")

    width = len(_RANGES) + 1
    with files.open_bytes(path) as file:
        first, last = read(file, category * width + begin, end - begin + 1)[[0, -1]].tolist()
        keys = num_categories * width
        counts = keys + int(read(file, keys - 1, 1)[0])
        return read(file, keys + first, last - first), read(file, counts + first, last - first)


@dataclasses.dataclass(frozen=True)
class Ranges:
    """Some of the 256 ranges of the values of a category; the high byte of a key is its range."""

    category: int
    begin: int
    end: int


def cut_ranges(sizes: np.ndarray) -> list[Ranges]:
    """Returns ranges with about as many values each, for the numbers of values of categories."""
    cuts = [min(2 ** int(size // _RANGE_VALUES).bit_length(), len(_RANGES)) for size in sizes]
    return [
        Ranges(category, begin, begin + len(_RANGES) // cut)
        for category, cut in enumerate(cuts)
        for begin in range(0, len(_RANGES), len(_RANGES) // cut)
    ]


def add_counts(
    paths: SharedArray, num_categories: int, min_frequency: int, ranges: Ranges
) -> tuple[np.ndarray, np.ndarray, int]:
    """Adds the counts of `write_counts`.

    Args:
      paths: the files, bytes `[n]`.
      num_categories: number of categories.
      min_frequency: lowest count of a value that is returned.
      ranges: the values.

    Returns:
      Frequent values, uint32 `[size]`, increasing, their counts, int64, and the number of all.

    Raises:
      DataError: the values fill over half of the available memory.
    """
    keys, totals, waiting, num_waiting = np.zeros(0, np.uint32), np.zeros(0, np.int64), [], 0
    for number, path in enumerate(paths.array, start=1):
        place = ranges.category, ranges.begin, ranges.end
        waiting.append(_read_counts(path.decode(), *place, num_categories))
        num_waiting += len(waiting[-1][0])
        # As many as are known already: each merge doubles at most, so a value is copied rarely.
        if number == len(paths.array) or num_waiting >= max(2**18, len(keys)):
            keys = np.concatenate([keys, *(each for each, _ in waiting)])
            totals = np.concatenate([totals, *(each for _, each in waiting)])
            order = np.argsort(keys, kind="stable")
            keys, totals, waiting, num_waiting = keys[order], totals[order], [], 0
            if len(keys):
                first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
                keys, totals = keys[first], np.add.reduceat(totals, first)
            num_bytes = keys.nbytes + totals.nbytes
            if num_bytes > memory.available_bytes() // 2:
                raise DataError(
                    f"the distinct values of a category fill {num_bytes} bytes, over half of the "
                    "available memory. Convert fewer rows, or use a machine with more memory"
                )
    is_frequent = totals >= min_frequency
    return keys[is_frequent], totals[is_frequent], len(keys)
