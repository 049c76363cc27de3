"""Click logs in the format of Criteo: label, 13 integers and 26 categories, separated by tabs.

SOURCE is such a file, or a folder with train.txt or train.tsv and maybe validation and test, or
with a file for each of consecutive days, day_0.gz, day_1.gz, ... of the terabyte logs; also .gz or
.xz. The label is 1 for a click. Integers and categories may be empty; a category is 8 hexadecimal
digits. A file of another split may have no labels, as test.txt of the Kaggle contest (Display
Advertising Challenge): it can only be predicted.

Split: rows are in the order of time, so of a single file the last rows are in "test", the rows
before them in "validation", and the others in "train". By default each of both has 1/14 of the
rows, half of the last of seven days, as in DLRM (Naumov et al. 2019, arXiv:1906.00091). Of several
days the last one is not in "train": its first half is "test" and the other "validation", as there
and in MLPerf Training.

A number x is stored as log(1 + x), a missing or negative one as 0. A category is stored as a row of
its embedding table: see `clicks_kind.Clicks`. The vocabulary has the values of "train".

The files are read three times, in blocks: memory holds a block of rows, 1 byte per row and 8 bytes
per distinct value. Each process reads a packed file from its start.
"""

from __future__ import annotations

import array
import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np

from common import names
from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset, RawSplit, Row, content_name
from input_fns.dataset_info import Feature, LeftOut
from input_fns.tables.clicks_kind import Clicks
from input_fns.tables.sources import criteo_files
from input_fns.tables.sources.criteo_files import ClickLog
from input_fns.tables.sources.criteo_vocabulary import (
    MISSING,
    Counter,
    Vocabulary,
    choose_rows,
    find_rows,
)

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


@dataclasses.dataclass(frozen=True)
class Block:
    """Consecutive rows: numbers float64 `[n, 13]`, NaN if missing; keys int64 `[n, 26]`.

    The key of a category is its value as a number, -1 if missing.
    """

    labels: np.ndarray
    numbers: np.ndarray
    keys: np.ndarray


@dataclasses.dataclass(frozen=True)
class RawClicks(RawSplit):
    """Consecutive rows of a log, which are read again.

    Attributes:
      log: its files.
      rows: numbers of the rows.
      vocabularies: of the categories.
      labels: uint8 `[size]`, None for rows to predict.
    """

    KEYS = ("rows", "labels")

    log: ClickLog
    rows: range
    vocabularies: Sequence[Vocabulary]
    labels: np.ndarray | None

    @property
    def has_labels(self) -> bool:
        """Whether the rows have labels."""
        return self.labels is not None

    def read(self, i: int) -> Row:
        """Reads a row."""
        return next(iter(self.part(i, i + 1)))

    def __iter__(self) -> Iterator[Row]:
        for block in iterate_blocks(self.log, self.rows, self.has_labels):
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
    counter, missing = Counter(len(CATEGORIES)), np.zeros(_WIDTH, np.int64)
    labels = {}
    for split, (log, rows) in ranges.items():
        found = array.array("B")
        for block in iterate_blocks(log, rows, split not in unlabelled):
            found.frombytes(block.labels.astype(np.uint8).tobytes())
            is_missing = np.concatenate([np.isnan(block.numbers), block.keys == MISSING], axis=1)
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
        split: RawClicks(log, rows, vocabularies, None if split in unlabelled else labels[split])
        for split, (log, rows) in ranges.items()
    }
    files = {file_name: content}
    return RawDataset(
        options.dataset, CLASS_NAMES, splits, files=files, kind=clicks, left_out=left_out
    )


def iterate_blocks(log: ClickLog, rows: range, has_labels: bool = True) -> Iterator[Block]:
    """Yields the rows of a log in blocks; labels are 0 if there are none.

    Raises:
      DataError: a row is invalid; the message names its line.
    """
    row, label = (_ROW, "") if has_labels else (_ROW_WITHOUT_LABEL, "0\t")
    for file, inside in log.ranges(rows):
        lines = file.lines(inside)
        while block := list(itertools.islice(lines, _BLOCK)):
            for number, line in block:
                # Without a label, the first integer follows a tab in the pattern.
                if not row.fullmatch(line if has_labels else f"\t{line}"):
                    problem = _find_problem(f"{label}{line}", has_labels)
                    raise DataError(f"{file.path}, line {number}: {problem}. Correct or remove it")
            yield _parse([f"{label}{line}".split("\t") for _, line in block])


def transform_numbers(numbers: np.ndarray) -> np.ndarray:
    """Returns log(1 + x), and 0 for x < 0 and NaN."""
    return np.log1p(np.maximum(np.nan_to_num(numbers), 0))


def _parse(rows):
    first = 1 + len(NUMBERS)
    numbers = [value or "nan" for row in rows for value in row[1:first]]
    categories = [value for row in rows for value in row[first:]]
    keys = np.frombuffer(bytes.fromhex("".join(v or "00000000" for v in categories)), ">u4")
    keys = np.where(np.array([not value for value in categories]), MISSING, keys.astype(np.int64))
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
