"""Click logs in the format of Criteo: label, 13 integers and 26 categories, separated by tabs.

SOURCE is such a file, or a folder with train.txt or train.tsv and maybe validation and test, or
with a file for each of consecutive days, day_0.gz, day_1.gz, ... of the terabyte logs; also .gz or
.xz. The label is 1 for a click. Integers and categories may be empty; a category is 8 hexadecimal
digits. A file of another split may have no labels, as test.txt of the Kaggle contest (Display
Advertising Challenge): it can only be predicted. SOURCE may be dac.tar.gz of this contest, or a
folder with it.

Split: rows are in the order of time, so of a single file the last rows are in "test", the rows
before them in "validation", and the others in "train". By default each of both has 1/14 of the
rows, half of the last of seven days, as in DLRM (Naumov et al. 2019, arXiv:1906.00091). Of several
days the last one is not in "train": its first half is "test" and the other "validation", as there
and in MLPerf Training.

A number x is stored as log(1 + x), a missing or negative one as 0. A category is stored as a row of
its embedding table: see `clicks_kind.Clicks`. The vocabulary has the values of "train".

The files are read twice, in parts by the worker processes: to count, see `criteo_counts`, and to
write. Memory holds blocks of rows and the vocabularies; counts of distinct values are files. Each
process reads a packed file from its start.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator

import numpy as np

from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.convert.runners import Runner
from input_fns.convert.shared_array import SharedArray
from input_fns.convert.source import RawDataset, RawSplit, Row, Rows, content_name
from input_fns.dataset_info import Feature, LeftOut
from input_fns.tables.clicks_kind import Clicks
from input_fns.tables.sources import criteo_counts, criteo_files
from input_fns.tables.sources.criteo_rows import CATEGORIES, NUMBERS, transform_numbers
from input_fns.tables.sources.criteo_text import ClickLog
from input_fns.tables.sources.criteo_vocabulary import (
    Vocabularies,
    add_counts,
    choose_rows,
    cut_ranges,
    find_rows,
)

CLASS_NAMES = ("no click", "click")
_FEATURES = {
    "numbers": Feature("raw", "float32", (len(NUMBERS),)),
    "categories": Feature("raw", "int32", (len(CATEGORIES),)),
}


@dataclasses.dataclass(frozen=True)
class RawClicks(RawSplit):
    """Consecutive rows of a log, which are read again.

    Attributes:
      log: its files.
      rows: numbers of the rows.
      vocabularies: of the categories.
      has_labels: see `RawSplit`.
    """

    KEYS = ("rows",)

    log: ClickLog
    rows: range
    vocabularies: Vocabularies
    has_labels: bool

    def read(self, i: int) -> Row:
        """Reads a row."""
        return next(iter(self.part(i, i + 1)))

    def __iter__(self) -> Iterator[Row]:
        for rows in self.blocks():
            yield from rows

    def blocks(self) -> Iterator[Rows]:
        """Yields all rows."""
        for block in self.log.blocks(self.rows, self.has_labels):
            values = {
                "numbers": transform_numbers(block.numbers).astype("<f4"),
                "categories": find_rows(block.keys, block.is_missing, self.vocabularies),
            }
            yield Rows(values, _FEATURES, block.labels if self.has_labels else None)


def read(options: Options, runner: Runner) -> RawDataset:
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
    paths = criteo_files.find_paths(options, left_out, runner)
    unlabelled = criteo_files.find_unlabelled(paths)
    logs, runs = criteo_counts.count(paths, unlabelled, runner)
    sizes = {split: [file.size for file in log.files] for split, log in logs.items()}
    ranges = criteo_files.find_ranges(paths, sizes, unlabelled, options)
    counts = criteo_counts.of_rows(logs["train"], ranges["train"][1], runs, runner.folder)
    vocabularies = _choose_vocabularies(counts, options, runner)
    content = vocabularies.as_text(CATEGORIES)
    file_name = content_name("categories.txt", content)
    missing = zip((*NUMBERS, *CATEGORIES), sum(run.missing for run in runs).tolist())
    clicks = Clicks(
        table_rows=tuple(map(sum, zip(vocabularies.num_rows, vocabularies.hash_rows))),
        vocabulary_rows=vocabularies.num_rows,
        vocabulary=file_name,
        missing={name: count for name, count in missing if count},
    )
    splits = {
        split: RawClicks(logs[source], rows, vocabularies, split not in unlabelled)
        for split, (source, rows) in ranges.items()
    }
    files = {file_name: content}
    return RawDataset(
        options.dataset, CLASS_NAMES, splits, files=files, kind=clicks, left_out=left_out
    )


def _choose_vocabularies(counts, options, runner):
    shared = functools.partial(SharedArray.write, runner.folder)
    parts = cut_ranges(sum(each.sizes for each in counts))
    paths = shared([np.array([each.path.encode() for each in counts])])
    add = functools.partial(add_counts, paths, len(CATEGORIES), options.min_frequency)
    added = zip(parts, runner.apply(add, parts))
    chosen = []
    for _, of_category in itertools.groupby(added, key=lambda each: each[0].category):
        keys, totals, sizes = zip(*(found for _, found in of_category))
        given = np.concatenate(keys), np.concatenate(totals), sum(sizes)
        chosen.append(choose_rows(*given, options.hash_rows, options.max_rows))
    keys, rows, hash_rows = zip(*chosen)
    return Vocabularies(shared(keys), shared(rows), tuple(map(len, keys)), hash_rows)
