"""Click logs in the format of Criteo: label, 13 integers and 26 categories, separated by tabs.

SOURCE is such a file, or a folder with train.txt or train.tsv and maybe validation and test; also
.gz or .xz. The label is 1 for a click. Integers and categories may be empty; a category is 8
hexadecimal digits. A file of another split may have no labels, as test.txt of the Kaggle contest
(Display Advertising Challenge): it can only be predicted.

Split: rows are in the order of time, so of a single file the last rows are in "test", the rows
before them in "validation", and the others in "train". By default each of both has 1/14 of the
rows, half of the last of seven days, as in DLRM (Naumov et al. 2019, arXiv:1906.00091).

A number x is stored as log(1 + x), a missing or negative one as 0. A category is stored as a row of
its embedding table: see `dataset_parts.Clicks`. The vocabulary has the values of "train".

The file is read three times, in blocks: memory holds a block of rows, 1 byte per row and 8 bytes
per distinct value.
"""

from __future__ import annotations

import array
import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from common import names
from input_fns import DataError
from input_fns.convert.files import iterate_lines
from input_fns.convert.source import Options, RawDataset, Row
from input_fns.convert.writer import content_name
from input_fns.core import memory
from input_fns.dataset_info import Feature, LeftOut
from input_fns.tables.clicks_kind import Clicks
from input_fns.tables.sources import criteo_files

NUMBERS = tuple(f"I{i}" for i in range(1, 14))
CATEGORIES = tuple(f"C{i}" for i in range(1, 27))
CLASS_NAMES = ("no click", "click")
_WIDTH = criteo_files.WIDTH
_FEATURES = {
    "numbers": Feature("raw", "float32", (len(NUMBERS),)),
    "categories": Feature("raw", "int32", (len(CATEGORIES),)),
}
# Tools that know no missing integers write 3.0.
_NUMBER, _CATEGORY = re.compile(r"-?[0-9]{1,18}(\.0+)?"), re.compile(r"[0-9a-fA-F]{8}")
_VALUES = (
    rf"(\t({_NUMBER.pattern})?){{{len(NUMBERS)}}}(\t({_CATEGORY.pattern})?){{{len(CATEGORIES)}}}"
)
_ROW, _ROW_WITHOUT_LABEL = re.compile(f"[01]{_VALUES}"), re.compile(_VALUES)
_BLOCK = 2**15  # rows
_MISSING = -1  # key of a missing category


@dataclasses.dataclass(frozen=True)
class Block:
    """Consecutive rows: numbers float64 `[n, 13]`, NaN if missing; keys int64 `[n, 26]`.

    The key of a category is its value as a number, -1 if missing.
    """

    labels: np.ndarray
    numbers: np.ndarray
    keys: np.ndarray


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


@dataclasses.dataclass(frozen=True)
class RawClicks:
    """Rows [begin, begin + size) of a file; iterating reads them again.

    `labels` are uint8 `[size]`, None for rows to predict.
    """

    path: str
    begin: int
    size: int
    labels: np.ndarray | None
    vocabularies: Sequence[Vocabulary]
    groups: None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of the rows."""
        return len(self) * sum(feature.num_bytes for feature in _FEATURES.values())

    @property
    def has_labels(self) -> bool:
        """Whether the rows have labels."""
        return self.labels is not None

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Row]:
        end = self.begin + len(self)
        for block in iterate_blocks(self.path, self.begin, end, self.has_labels):
            numbers = transform_numbers(block.numbers).astype("<f4")
            categories = find_rows(block.keys, self.vocabularies).astype("<i4")
            for row in zip(numbers, categories):
                values = {name: value.tobytes() for name, value in zip(_FEATURES, row)}
                yield Row(values, _FEATURES)


def read(options: Options) -> RawDataset:
    """Returns the splits, with the vocabulary as a file.

    Raises:
      DataError: there is no such file, a row is invalid, or there are too few rows.
    """
    if options.max_rows < options.hash_rows + 2:
        raise DataError(
            f"--max_rows={options.max_rows} has no room for --hash_rows={options.hash_rows}, the "
            f"row of missing values and a vocabulary. Use at least {options.hash_rows + 2}"
        )
    left_out = LeftOut()
    paths = criteo_files.find_paths(options, left_out)
    unlabelled = criteo_files.find_unlabelled(paths)
    ranges = criteo_files.find_ranges(paths, unlabelled, options)
    counter, missing = _Counter(), np.zeros(_WIDTH, np.int64)
    labels = {}
    for split, (path, begin, end) in ranges.items():
        found = array.array("B")
        for block in iterate_blocks(path, begin, end, split not in unlabelled):
            found.frombytes(block.labels.astype(np.uint8).tobytes())
            is_missing = np.concatenate([np.isnan(block.numbers), block.keys == _MISSING], axis=1)
            missing[1:] += is_missing.sum(axis=0)
            if split == "train":
                counter.add(block.keys)
        labels[split] = np.frombuffer(found, np.uint8)
    vocabularies = [
        choose_rows(keys, counts, options.min_frequency, options.hash_rows, options.max_rows)
        for keys, counts in counter.totals()
    ]
    content = "".join(
        f"{name}\t{value}\n"
        for name, vocabulary in zip(CATEGORIES, vocabularies)
        for value in vocabulary.values()
    ).encode()
    file_name = content_name("categories.txt", content)
    by_name = zip((*NUMBERS, *CATEGORIES), missing[1:].tolist())
    clicks = Clicks(
        table_rows=tuple(found.num_rows + found.hash_rows for found in vocabularies),
        vocabulary_rows=tuple(found.num_rows for found in vocabularies),
        vocabulary=file_name,
        missing={name: count for name, count in by_name if count},
    )
    splits = {
        split: RawClicks(
            path, begin, end - begin, None if split in unlabelled else labels[split], vocabularies
        )
        for split, (path, begin, end) in ranges.items()
    }
    files = {file_name: content}
    return RawDataset(
        options.dataset, CLASS_NAMES, splits, files=files, kind=clicks, left_out=left_out
    )


def iterate_blocks(path: str, begin: int, end: int, has_labels: bool = True) -> Iterator[Block]:
    """Yields the rows [begin, end) of a file in blocks; labels are 0 if there are none.

    Raises:
      DataError: a row is invalid; the message names its line.
    """
    lines = itertools.islice(enumerate(iterate_lines(path), start=1), begin, end)
    row, label = (_ROW, "") if has_labels else (_ROW_WITHOUT_LABEL, "0\t")
    while block := list(itertools.islice(lines, _BLOCK)):
        for number, line in block:
            # Without a label, the first integer follows a tab in the pattern.
            if not row.fullmatch(line if has_labels else f"\t{line}"):
                problem = _find_problem(f"{label}{line}", has_labels)
                raise DataError(f"{path}, line {number}: {problem}. Correct or remove it")
        yield _parse([f"{label}{line}".split("\t") for _, line in block])


def transform_numbers(numbers: np.ndarray) -> np.ndarray:
    """Returns log(1 + x), and 0 for x < 0 and NaN."""
    return np.log1p(np.maximum(np.nan_to_num(numbers), 0))


def choose_rows(
    keys: np.ndarray, counts: np.ndarray, min_frequency: int, hash_rows: int, max_rows: int
) -> Vocabulary:
    """Returns the vocabulary of a category: its most frequent values.

    Args:
      keys: int64 `[size]`, distinct, increasing; may have `_MISSING`.
      counts: int64 `[size]`, number of rows with each.
      min_frequency: lowest count of a value of the vocabulary.
      hash_rows: most rows of other values; at least one is for values that are not in `keys`.
      max_rows: most rows of the table.
    """
    keys, counts = keys[keys != _MISSING], counts[keys != _MISSING]
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
        is_other[:, i] = ~is_known & (column != _MISSING)
    others, inverse = np.unique(keys[is_other], return_inverse=True)
    if len(others):
        sizes = np.array([[found.hash_rows, found.num_rows] for found in vocabularies])
        sizes = sizes[np.nonzero(is_other)[1]]
        rows[is_other] = sizes[:, 1] + _hashes(others)[inverse] % sizes[:, 0]
    return rows


def _hashes(keys):
    """Returns the hash of each value, int64, as a SavedModel computes it."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        values = tf.constant([f"{key:08x}" for key in keys])
        return session.run(tf.strings.to_hash_bucket_fast(values, 2**63 - 1))


class _Counter:
    """Counts the values of each category; memory holds the distinct ones."""

    def __init__(self):
        self._keys = [np.zeros(0, np.uint32) for _ in CATEGORIES]
        self._counts = [np.zeros(0, np.uint32) for _ in CATEGORIES]
        self._waiting, self._num_waiting = [], 0

    def add(self, keys):
        """Counts int64 `[n, 26]`."""
        self._waiting.append(keys)
        self._num_waiting += len(keys)
        # As many as are known already: each merge doubles at most, so a value is copied rarely.
        if self._num_waiting * len(CATEGORIES) >= max(2**22, sum(map(len, self._keys))):
            self._merge()

    def totals(self):
        """Yields distinct keys and their counts, int64 `[size]`, for each category."""
        self._merge()
        for keys, counts in zip(self._keys, self._counts):
            yield keys.astype(np.int64), counts.astype(np.int64)

    def _merge(self):
        waiting = np.concatenate([np.zeros([0, len(CATEGORIES)], np.int64), *self._waiting])
        self._waiting, self._num_waiting = [], 0
        for i, column in enumerate(waiting.T):
            new, counts = np.unique(column[column != _MISSING], return_counts=True)
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


def _parse(rows):
    first = 1 + len(NUMBERS)
    numbers = [value or "nan" for row in rows for value in row[1:first]]
    categories = [value for row in rows for value in row[first:]]
    keys = np.frombuffer(bytes.fromhex("".join(v or "00000000" for v in categories)), ">u4")
    keys = np.where(np.array([not value for value in categories]), _MISSING, keys.astype(np.int64))
    return Block(
        np.array([row[0] == "1" for row in rows], np.uint8),
        np.array(numbers, np.float64).reshape(len(rows), len(NUMBERS)),
        keys.reshape(len(rows), len(CATEGORIES)),
    )


def _find_problem(line, has_labels):
    """Returns what is wrong with a row."""
    values = line.split("\t")
    if not has_labels and len(values) != _WIDTH:
        return f"{len(values) - 1} values instead of {_WIDTH - 1}: the first row has no label"
    if len(values) == _WIDTH - 1:
        return f"{_WIDTH - 1} values instead of {_WIDTH}: a row without a label cannot be used"
    if len(values) != _WIDTH:
        return f"{len(values)} value{'s' * (len(values) > 1)} instead of {_WIDTH}"
    if values[0] not in ("0", "1"):
        return f"the label {names.shown(values[0])!a} is not 0 or 1"
    for name, value in zip((*NUMBERS, *CATEGORIES), values[1:]):
        if name in NUMBERS and value and not _NUMBER.fullmatch(value):
            return f"{name} {names.shown(value)!a} is not an integer"
        if name in CATEGORIES and value and not _CATEGORY.fullmatch(value):
            return f"{name} {names.shown(value)!a} is not 8 hexadecimal digits"
    return "invalid"
