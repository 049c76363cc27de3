"""Parallel text: for each split one file per language, aligned by line.

    SOURCE/train.en[.gz]   SOURCE/train.de[.gz]   SOURCE/val.en[.gz]   ...

Lines are those of `files.read_lines`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from common import folders
from input_fns import DataError
from input_fns.convert.files import read_lines
from input_fns.convert.source import Options, RawDataset
from input_fns.convert.split_names import split_names


@dataclasses.dataclass(frozen=True)
class RawText:
    """Pairs of sentences; `subwords.encode` turns them into a `RawSplit`.

    Attributes:
      source: source sentences, UTF-8.
      target: target sentences, UTF-8.
      numbers: line numbers, from 1.
    """

    source: list[bytes]
    target: list[bytes]
    numbers: np.ndarray
    labels: None = None

    @property
    def groups(self) -> np.ndarray:
        """Groups of equal sources, which must stay in one split."""
        number_of: dict[bytes, int] = {}
        return np.array([number_of.setdefault(line, len(number_of)) for line in self.source])

    def __len__(self) -> int:
        return len(self.source)

    def take(self, indices: Sequence[int]) -> RawText:
        """Returns the split of these pairs, in the order of the indices."""
        sides = ([side[i] for i in indices] for side in (self.source, self.target))
        return RawText(*sides, self.numbers[indices])


def read(options: Options) -> RawDataset:
    """Returns one split per pair of files; `languages` are source and target.

    Raises:
      DataError: a file is missing or not UTF-8, or the numbers of lines differ.
    """
    if len(options.languages) != 2:
        raise DataError(f"--languages={','.join(options.languages)}: two are needed, as in en,de")
    sides = [_files(options.source, language) for language in options.languages]
    if not sides[0] or not sides[1]:
        missing = options.languages[0 if not sides[0] else 1]
        raise DataError(f"--source={options.source} has no file that ends in .{missing}[.gz]")
    alone = sorted(sides[0].keys() ^ sides[1].keys())
    if alone:
        raise DataError(f"--source={options.source}: '{alone[0]}' is there in one language alone")
    names = split_names(sorted(sides[0]), f"--source={options.source}")
    splits = {ours: _read_pair(*(side[name] for side in sides)) for ours, name in names.items()}
    return RawDataset(options.dataset, (), splits)


def _files(folder, language):
    """Returns `{split: path}` of one language."""
    found = {}
    for name in folders.names(folder):
        stem = name[: -len(".gz")] if name.endswith(".gz") else name
        if stem.endswith(f".{language}"):
            split = stem[: -len(language) - 1]
            if split in found:
                raise DataError(f"{folder} has both {split}.{language} and {split}.{language}.gz")
            found[split] = os.path.join(folder, name)
    return found


def _read_pair(source_path, target_path):
    source, target = read_lines(source_path), read_lines(target_path)
    if len(source) != len(target):
        raise DataError(
            f"{source_path} has {len(source)} lines, but {target_path} {len(target)}: "
            "they cannot translate each other line by line"
        )
    return RawText(source, target, np.arange(1, len(source) + 1))
