"""Counts the rows of click logs, their missing values and the values of their categories.

Each part of the files is read once. How many rows "train" has is only known at the end, so the
counts of each run of rows are kept apart, in a file. Those of "train" are then added; a run of rows
that is only partly in "train" is read again: 32 MiB of a plain file. A packed file, which is one
part, is unpacked again up to there, and few of its rows are parsed.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import secrets
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from input_fns.convert import files
from input_fns.convert.runners import Runner
from input_fns.convert.shared_array import SharedArray
from input_fns.tables.sources.criteo_rows import InvalidLineError, find_problem, parse
from input_fns.tables.sources.criteo_text import ClickLog, LogFile, is_cut, iterate_blocks
from input_fns.tables.sources.criteo_vocabulary import write_counts

_PART_BYTES = 2**25
_RUN_ROWS = 2**18


@dataclasses.dataclass(frozen=True)
class Part:
    """Bytes of a file, and the lines that begin in them.

    Attributes:
      split: the split of the file.
      number: number of the file in the split.
      path: the file.
      begin: first byte.
      end: the byte after the last one; None: all.
      is_cut: whether the file can be read from any byte.
      has_labels: whether its rows have labels.
    """

    split: str
    number: int
    path: str
    begin: int
    end: int | None
    is_cut: bool
    has_labels: bool


@dataclasses.dataclass(frozen=True)
class Counts:
    """How many rows have each value of each category: the file of `write_counts`.

    Attributes:
      path: the file.
      sizes: number of values of each category, int64 `[26]`.
    """

    path: str
    sizes: np.ndarray


@dataclasses.dataclass(frozen=True)
class Run:
    """Consecutive rows.

    Attributes:
      rows: their numbers in the part; from `count`, those in the log.
      missing: int64 `[39]`, numbers of missing values.
      counts: of the values of categories; None if "train" has no rows of the file.
    """

    rows: range
    missing: np.ndarray
    counts: Counts | None


@dataclasses.dataclass
class CountedPart:
    """What is in a part.

    Attributes:
      size: number of rows.
      places: some rows and the bytes of the file where they begin.
      runs: the rows.
      invalid: the first line that is no row, or None.
    """

    size: int = 0
    places: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    runs: list[Run] = dataclasses.field(default_factory=list)
    invalid: InvalidLineError | None = None


def count(
    paths: Mapping[str, Sequence[str]], unlabelled: Collection[str], runner: Runner
) -> tuple[dict[str, ClickLog], list[Run]]:
    """Returns `{split: log}` and all runs of rows.

    Args:
      paths: `{split: paths}`.
      unlabelled: splits whose rows have no labels.
      runner: reads the parts.

    Raises:
      DataError: a row is invalid; the message names its line.
    """
    parts = list(_parts(paths, unlabelled))
    sizes, places = {}, {}  # of each file, by split and number
    in_split, runs = dict.fromkeys(paths, 0), []
    for part, found in zip(
        parts, runner.apply(functools.partial(count_part, runner.folder), parts)
    ):
        files.record(part.path)  # a worker has read it
        file = part.split, part.number
        in_file = sizes.get(file, 0)
        if found.invalid:
            number, line = in_file + found.invalid.row + 1, found.invalid.line
            raise find_problem(part.path, number, line, part.has_labels)
        begin = in_split[part.split]
        for run in found.runs:
            rows = range(begin + run.rows.start, begin + run.rows.stop)
            runs.append(dataclasses.replace(run, rows=rows))
        in_part = [(in_file + row, place) for row, place in found.places]
        places.setdefault(file, []).append(np.array(in_part, np.int64).reshape(-1, 2))
        sizes[file] = in_file + found.size
        in_split[part.split] += found.size
    logs = {split: [] for split in paths}
    for split, number in sizes:
        shared = SharedArray.write(runner.folder, places[split, number])
        logs[split].append(LogFile(paths[split][number], sizes[split, number], shared))
    return {split: ClickLog(tuple(found)) for split, found in logs.items()}, runs


def _parts(paths, unlabelled):
    for split, of_split in paths.items():
        for number, path in enumerate(of_split):
            cuts, begins = is_cut(path), [0]
            if cuts:
                begins = [0, *range(_PART_BYTES, files.num_bytes(path), _PART_BYTES)]
            for begin, end in zip(begins, [*begins[1:], None]):
                yield Part(split, number, path, begin, end, cuts, split not in unlabelled)


def count_part(folder: str, part: Part) -> CountedPart:
    """Counts a part, in a worker, which writes the counts of its runs into a folder."""
    found, blocks, begin = CountedPart(), [], 0
    try:
        for place, lines in iterate_blocks(part.path, part.begin, part.end):
            blocks.append(parse(lines, part.has_labels, found.size))
            if part.is_cut or not found.places:
                found.places.append((found.size, place))
            found.size += len(blocks[-1].labels)
            if found.size - begin >= _RUN_ROWS:
                found.runs.append(_count_run(blocks, begin, folder, part.split))
                blocks, begin = [], found.size
    except InvalidLineError as error:
        found.invalid = error
    if blocks:
        found.runs.append(_count_run(blocks, begin, folder, part.split))
    return found


def _count_run(blocks, begin, folder, split="train"):
    is_missing = [
        np.concatenate([np.isnan(block.numbers), block.is_missing], axis=1) for block in blocks
    ]
    missing = sum(each.sum(axis=0) for each in is_missing)
    rows = range(begin, begin + sum(map(len, is_missing)))
    if split != "train":
        return Run(rows, missing, None)
    path = os.path.join(folder, secrets.token_hex(8))
    keys, absent = ([getattr(block, name) for block in blocks] for name in ("keys", "is_missing"))
    return Run(rows, missing, Counts(path, write_counts(path, keys, absent)))


def of_rows(log: ClickLog, rows: range, runs: Sequence[Run], folder: str) -> list[Counts]:
    """Returns the counts of the first rows of "train"."""
    runs = [run for run in runs if run.counts and run.rows.start < rows.stop]
    if runs[-1].rows.stop > rows.stop:
        begin = runs.pop().rows.start
        blocks = list(log.blocks(range(begin, rows.stop), has_labels=True))
        runs.append(_count_run(blocks, begin, folder))
    return [run.counts for run in runs]
