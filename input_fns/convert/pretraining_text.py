"""Text for the pre-training of BERT: one sentence per line, and an empty line between documents.

SOURCE/train.txt and SOURCE/dev.txt are splits, and so are folders of texts, SOURCE/train/*.txt.
Texts of any other names are all of "train".

Files may end in .gz or .xz, and be larger than the memory. The end of a file ends its document.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence

import numpy as np

from common import folders
from input_fns import DataError
from input_fns.convert import token_rows
from input_fns.convert.files import PACKED, iterate_lines, split_packed
from input_fns.convert.source import Options, RawDataset
from input_fns.convert.split_names import is_split, split_names


@dataclasses.dataclass(frozen=True)
class RawDocuments:
    """A split of documents; `pretraining_rows.encode` turns it into a `RawSplit`.

    Attributes:
      paths: the files, in order.
      indices: sorted numbers of the documents of this split, int64 `[size]`.
      smallest: number of documents that a split needs: the second text of a pair may be of another.
    """

    paths: tuple[str, ...]
    indices: np.ndarray
    labels: None = None
    groups: None = None
    smallest: int = 2

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, indices: Sequence[int]) -> RawDocuments:
        """Returns the split of these documents, in the order of the files."""
        return RawDocuments(self.paths, np.sort(self.indices[indices]))

    def __iter__(self) -> Iterator[list[str]]:
        """Yields the sentences of each document."""
        chosen = np.zeros(self.indices[-1] + 1, bool)
        chosen[self.indices] = True
        for number, document in enumerate(_documents(self.paths)):
            if number >= len(chosen):
                return
            if chosen[number]:
                yield document

    @property
    def sentences(self) -> _Sentences:
        """The sentences of all documents, which may be iterated many times."""
        return _Sentences(self)


@dataclasses.dataclass(frozen=True)
class _Sentences:
    documents: RawDocuments

    def __iter__(self):
        for document in self.documents:
            yield from document


def read(options: Options) -> RawDataset:
    """Returns the documents of each split.

    Args:
      options: `source` is a folder or a file.

    Raises:
      DataError: there is no text, a file is not UTF-8, or a split has one document only.
    """
    splits = {}
    for name, paths in _split_files(options.source).items():
        count = sum(1 for _ in _documents(paths))
        if not count:
            raise DataError(f"split '{name}' of --source={options.source} has no text")
        if count == 1:
            raise DataError(
                f"split '{name}' of --source={options.source} is one document, and needs two: the "
                "second text of a pair may be of another. Put empty lines between documents"
            )
        splits[name] = RawDocuments(tuple(paths), np.arange(count))
    return RawDataset(
        options.dataset,
        (),
        splits,
        labels=("masked_lm_ids", "masked_lm_weights", "next_sentence_labels"),
        wordpiece=token_rows.draft("pretraining", True, {}),
    )


def _split_files(source):
    """Returns `{split: paths}`."""
    if folders.is_file(source):
        return {"train": [source]}
    found = {}
    for name in folders.names(source):
        path = os.path.join(source, name)
        stem, extension = os.path.splitext(split_packed(name)[0])
        if folders.is_folder(path) and is_split(name):
            inside = [os.path.join(path, file) for file in folders.names(path)]
            paths = [file for file in inside if split_packed(file)[0].endswith(".txt")]
        else:
            paths, name = [path] if extension == ".txt" else [], stem
        if paths and name in found:
            raise DataError(f"{source} has both {found[name][0]} and {paths[0]}")
        if paths:
            found[name] = paths
    if not found:
        raise DataError(f"--source={source} has no .txt file, plain or with {' or '.join(PACKED)}")
    if not any(map(is_split, found)):
        return {"train": [path for paths in found.values() for path in paths]}
    others = [name for name in found if not is_split(name)]
    if others:
        raise DataError(
            f"{found[others[0]][0]} belongs to no split, but other files do: name it train.txt, "
            "dev.txt or test.txt, or move it to a folder of that name"
        )
    return {ours: found[name] for ours, name in split_names(found, f"--source={source}").items()}


def _documents(paths):
    """Yields the lines with text of each document."""
    for path in paths:
        document = []
        for line in iterate_lines(path):
            sentence = line.strip()
            if sentence:
                document.append(sentence)
            elif document:
                yield document
                document = []
        if document:
            yield document
