"""Files of click logs in the format of Criteo, and the rows of each split; see `criteo`."""

from __future__ import annotations

import array
import dataclasses
import glob
import itertools
import os
from collections.abc import Collection, Iterator, Mapping

from common import folders
from input_fns import DataError
from input_fns.convert import inventory, split_names
from input_fns.convert.files import PACKED, index_lines, iterate_lines
from input_fns.convert.options import Options
from input_fns.dataset_info import LeftOut

WIDTH = 40  # values of a row: label, 13 integers, 26 categories
_FRACTION = 1 / 14
_EXTENSIONS = (".txt", ".tsv")
_EVERY = 2**12  # lines from one place of the index to the next


@dataclasses.dataclass(frozen=True)
class IndexedFile:
    """A file whose rows are read from any place.

    Attributes:
      path: local or gs://.
      size: number of rows.
      offsets: see `files.index_lines`.
    """

    path: str
    size: int
    offsets: array.array

    def lines(self, rows: range) -> Iterator[tuple[int, str]]:
        """Yields the number, from 1, and the text of the lines of consecutive rows."""
        place = min(rows.start // _EVERY, len(self.offsets) - 1)
        lines = iterate_lines(self.path, offset=self.offsets[place])
        numbered = enumerate(lines, start=1 + place * _EVERY)
        return itertools.islice(numbered, rows.start - place * _EVERY, rows.stop - place * _EVERY)


def find_unlabelled(paths: Mapping[str, str]) -> set[str]:
    """Returns the splits whose files have rows without labels; those of "train" need them."""
    return {
        split for split, path in paths.items() if split != "train" and _width(path) == WIDTH - 1
    }


def _width(path):
    """Returns the number of values in the first line of a file."""
    return next(iterate_lines(path), "").count("\t") + 1


def find_ranges(
    paths: Mapping[str, str], unlabelled: Collection[str], options: Options
) -> dict[str, tuple[IndexedFile, range]]:
    """Returns `{split: (file, its rows)}`.

    Args:
      paths: `{split: path}`.
      unlabelled: splits whose rows have no labels.
      options: `validation_fraction` and `test_fraction` of the last rows of "train" are held out.

    Raises:
      DataError: a file has no rows, or too few, or a split to hold out is there.
    """
    files = {split: IndexedFile(path, *index_lines(path, _EVERY)) for split, path in paths.items()}
    for file in files.values():
        if not file.size:
            raise DataError(f"{file.path} has no rows")
    fractions = {"validation": options.validation_fraction, "test": options.test_fraction}
    given = [name for name in fractions if name in paths and fractions[name]]
    if given:
        raise DataError(f"--{given[0]}_fraction: {options.source} already has a '{given[0]}' file")
    default = _FRACTION if len(paths) - len(unlabelled) == 1 else 0
    size = files["train"].size
    counts = {
        name: round(size * (default if fraction is None else fraction))
        for name, fraction in fractions.items()
        if name not in paths
    }
    wanted = [name for name in counts if fractions[name] or (fractions[name] is None and default)]
    empty = [name for name in wanted if not counts[name]]
    if empty or sum(counts.values()) >= size:
        raise DataError(
            f"{paths['train']} has {size} rows, too few for the splits 'train' and "
            f"{' and '.join(repr(name) for name in wanted)}. Set --validation_fraction and "
            "--test_fraction, to 0 to hold nothing out"
        )
    ends = {"train": size - sum(counts.values())}
    ends["validation"] = ends["train"] + counts.get("validation", 0)
    ranges = {split: (file, range(file.size)) for split, file in files.items()}
    ranges["train"] = files["train"], range(ends["train"])
    for name, begin in (("validation", ends["train"]), ("test", ends["validation"])):
        if counts.get(name):
            ranges[name] = files["train"], range(begin, begin + counts[name])
    return ranges


def find_paths(options: Options, left_out: LeftOut) -> dict[str, str]:
    """Returns `{split: path}` of --source, with "train".

    Args:
      options: `source`, `split_files` and `skip` are used.
      left_out: gets the texts that are no click logs.

    Raises:
      DataError: see `split_names.find_files`, or there is no "train".
    """
    if not folders.is_folder(options.source):
        return {"train": options.source}
    others = list(_other_texts(options))
    for name in others:
        left_out.add(f"files whose rows do not have {WIDTH} values", name)
    skip = (*options.skip, *map(glob.escape, others))
    found = split_names.find_files(dataclasses.replace(options, skip=skip), _EXTENSIONS)
    if "train" not in found:
        raise DataError(
            f"--source={options.source} has no train.txt or train.tsv, plain or with "
            f"{' or '.join(PACKED)}, only {', '.join(map(os.path.basename, found.values()))}. Name "
            "the files with --split_files=train=FILE,test=FILE"
        )
    return found


def _other_texts(options):
    """Yields the names of texts such as readme.txt, without a split in their names."""
    for name in inventory.names(options.source, options):
        stem, extension = split_names.stem_of(name, _EXTENSIONS)
        path = os.path.join(options.source, name)
        has_split = split_names.split_of(stem) or split_names.split_in(stem)
        if not extension or has_split or not folders.is_file(path):
            continue
        if _width(path) not in (WIDTH, WIDTH - 1):
            yield name
