"""Parallel text: for each split one file per language, aligned by line.

    SOURCE/train.en[.gz]   SOURCE/train.de[.gz]   SOURCE/val.en[.gz]   ...
    SOURCE/Books.de-en.en   SOURCE/Books.de-en.de   SOURCE/newstest2014.en   ...

Lines are those of `files.read_lines`.
"""

from __future__ import annotations

import dataclasses
import os

import numpy as np

from input_fns import DataError
from input_fns.convert.files import note, read_lines
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset, RawSplit, numbered
from input_fns.convert.split_names import by_split, given_files, named_files, split_in


@dataclasses.dataclass(frozen=True)
class RawText(RawSplit):
    """Pairs of sentences; `subwords.encode` turns them into a `RawSplit`.

    Attributes:
      source: source sentences, UTF-8.
      target: target sentences, UTF-8.
      numbers: line numbers, from 1.
    """

    KEYS = ("source", "target", "numbers")

    source: list[bytes]
    target: list[bytes]
    numbers: np.ndarray

    @property
    def groups(self) -> np.ndarray:
        """Groups of equal sources, which must stay in one split."""
        return numbered(self.source, len(self))


def read(options: Options) -> RawDataset:
    """Returns one split per pair of files; `languages` are source and target.

    Raises:
      DataError: a file is missing or not UTF-8, or the numbers of lines differ.
    """
    if len(options.languages) != 2:
        raise DataError(f"--languages={','.join(options.languages)}: two are needed, as in en,de")
    pairs = _pairs(options)
    splits = {
        split: _joined([_read_pair(*paths, options.encoding) for paths in of_split])
        for split, of_split in _by_split(pairs, options).items()
    }
    return RawDataset(options.dataset, (), splits)


def _pairs(options):
    """Returns `{name without language: (path of the source, path of the target)}`."""
    sides = [named_files(options, (f".{name.lower()}",)) for name in options.languages]
    alone = sorted(sides[0].keys() ^ sides[1].keys())
    if alone:
        raise DataError(
            f"--source={options.source}: '{alone[0]}' is in only one of the languages. Add the "
            "other, or leave it out with --skip"
        )
    return {stem: (sides[0][stem], sides[1][stem]) for stem in sorted(sides[0])}


def _by_split(pairs, options):
    """Returns `{split: pairs}`; corpora whose names have no split are all of "train"."""
    if options.split_files:
        by_name = {
            **{os.path.join(options.source, stem): pair for stem, pair in pairs.items()},
            **{path: pair for pair in pairs.values() for path in pair},
        }
        given = given_files(options)
        for path in given.values():
            if path not in by_name:
                raise DataError(f"--split_files: {path} is not a file in both languages")
        return {split: [by_name[path]] for split, path in given.items()}
    if not any(map(split_in, pairs)):
        if len(pairs) > 1:
            note(f"'train' is all of {', '.join(pairs)}: no name has a split")
        return {"train": list(pairs.values())}
    of_source = {stem: source for stem, (source, _) in pairs.items()}
    split_of_source = {path: split for split, path in by_split(of_source, options).items()}
    return {split_of_source[pair[0]]: [pair] for pair in pairs.values()}


def _joined(texts):
    """Returns the pairs of several corpora as one split."""
    if len(texts) == 1:
        return texts[0]
    sides = ([line for text in texts for line in getattr(text, s)] for s in ("source", "target"))
    return RawText(*sides, np.concatenate([text.numbers for text in texts]))


def _read_pair(source_path, target_path, encoding):
    source, target = read_lines(source_path, encoding), read_lines(target_path, encoding)
    if len(source) != len(target):
        raise DataError(
            f"{source_path} has {len(source)} lines, but {target_path} {len(target)}: "
            "they cannot translate each other line by line"
        )
    return RawText(source, target, np.arange(1, len(source) + 1))
