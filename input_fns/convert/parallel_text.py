"""Parallel text: for each split two files, one a language, whose lines translate each other.

    SOURCE/train.en[.gz]   SOURCE/train.de[.gz]   SOURCE/val.en[.gz]   ...

A line is what stands between two line feeds, byte for byte; the last line feed ends the last line.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence

import tensorflow as tf

from input_fns import DataError
from input_fns.convert.files import read_bytes
from input_fns.convert.source import SPLIT_NAMES, Options, RawDataset, Row
from input_fns.dataset import Feature

_FEATURES = {name: Feature("text", "string", ()) for name in ("source", "target")}


@dataclasses.dataclass(frozen=True)
class RawText:
    """A `RawSplit` of pairs of sentences, UTF-8."""

    source: list[bytes]
    target: list[bytes]
    labels: None = None
    groups: None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of both sides."""
        return sum(map(len, self.source)) + sum(map(len, self.target))

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Row]:
        for source, target in zip(self.source, self.target):
            yield Row({"source": source, "target": target}, _FEATURES)

    def take(self, indices: Sequence[int]) -> RawText:
        """Returns the split of these pairs, in the order of the indices."""
        return RawText(*([side[i] for i in indices] for side in (self.source, self.target)))


def read(options: Options) -> RawDataset:
    """Returns a split for each pair of files, "source" and "target" in the order of `languages`.

    Raises:
      DataError: a file has no partner, another number of lines than it, or is not UTF-8.
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
    splits = {
        SPLIT_NAMES.get(name, name): _read_pair(*(side[name] for side in sides))
        for name in sorted(sides[0])
    }
    return RawDataset(options.dataset, (), splits)


def _files(folder, language):
    """Returns `{split: path}` of one language."""
    found = {}
    for name in tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else ():
        stem = name[: -len(".gz")] if name.endswith(".gz") else name
        if stem.endswith(f".{language}"):
            split = stem[: -len(language) - 1]
            if split in found:
                raise DataError(f"{folder} has both {split}.{language} and {split}.{language}.gz")
            found[split] = os.path.join(folder, name)
    return found


def _read_pair(source_path, target_path):
    source, target = _lines(source_path), _lines(target_path)
    if len(source) != len(target):
        raise DataError(
            f"{source_path} has {len(source)} lines, but {target_path} {len(target)}: "
            "they cannot translate each other line by line"
        )
    return RawText(source, target)


def _lines(path):
    data = read_bytes(path)
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            offset = sum(len(before) + 1 for before in lines[: number - 1]) + error.start
            raise DataError(
                f"{path}, line {number}, byte {offset}: no UTF-8 ({error.reason})"
            ) from error
    return lines
