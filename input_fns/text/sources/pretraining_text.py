"""Text for the pre-training of BERT: sentences of documents, in the forms of `document_forms`.

SOURCE/train.txt and SOURCE/wiki_dev.txt are splits, and so are folders of texts,
SOURCE/train/*.txt. Texts of any other names are all of "train". Files of WikiExtractor, wiki_00,
are read in any folder, such as SOURCE/AA.

Files may end in .gz or .xz, and be larger than the memory. The end of a file ends its document.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence

import numpy as np

from common import folders
from input_fns import DataError
from input_fns.convert import inventory
from input_fns.convert.files import PACKED, note, split_packed
from input_fns.convert.options import Options
from input_fns.convert.runners import Runner
from input_fns.convert.source import RawDataset, RawSplit
from input_fns.convert.split_names import (
    find_files,
    is_document,
    is_split,
    split_in,
    split_names,
    stem_of,
)
from input_fns.text.sources import bert_vocabulary
from input_fns.text.sources.documents import Piece, find_pieces

_EXTENSIONS = (".txt",)
_WIKI = re.compile(r"wiki_\d+")
# Share of names with the word of a split that may be titles.
_FEW = 0.1


@dataclasses.dataclass(frozen=True)
class RawDocuments(RawSplit):
    """A split of documents; `pretraining_rows.encode` turns it into a `RawSplit`.

    Attributes:
      pieces: the files of the split, and of splits that were held out of it.
      indices: sorted numbers of the documents of this split, `[size]`.
      smallest: the second text of a pair may be of another document.
    """

    KEYS = ("indices",)
    smallest = 2

    pieces: tuple[Piece, ...]
    indices: np.ndarray

    @property
    def paths(self) -> set[str]:
        """The files."""
        return {piece.path for piece in self.pieces}

    def take(self, indices: Sequence[int]) -> RawDocuments:
        """Returns the split of these documents, in the order of the files."""
        return super().take(np.sort(indices))


def read(options: Options, runner: Runner) -> RawDataset:
    """Returns the documents of each split.

    Args:
      options: `source` is a folder or a file.
      runner: counts the documents of parts of the files.

    Raises:
      DataError: there is no text, a file is not UTF-8, or a split has one document only.
    """
    splits = {}
    for name, paths in split_files(options).items():
        pieces = find_pieces(paths, options.encoding, runner)
        count = sum(piece.num_documents for piece in pieces)
        if not count:
            raise DataError(f"split '{name}' of --source={options.source} has no text")
        if count == 1:
            raise DataError(
                f"split '{name}' of --source={options.source} is one document, and needs two: the "
                "second text of a pair may be of another. Put empty lines between documents"
            )
        splits[name] = RawDocuments(pieces, np.arange(count, dtype=np.uint32))
    return RawDataset(
        options.dataset,
        (),
        splits,
        labels=("masked_lm_ids", "masked_lm_weights", "next_sentence_labels"),
        kind=bert_vocabulary.draft("pretraining", True, {}),
        encoder="text.sources.pretraining_rows",
    )


def split_files(options: Options, extensions: tuple[str, ...] = _EXTENSIONS) -> dict:
    """Returns `{split: paths}` of texts.

    Raises:
      DataError: there is none, or names do not say which splits they are of.
    """
    source, where = options.source, f"--source={options.source}"
    if options.split_files:
        return {split: [path] for split, path in find_files(options, extensions).items()}
    if folders.is_file(source):
        return {"train": [source]}
    found = {}
    for name in inventory.names(source, options):
        path = os.path.join(source, name)
        stem, extension = stem_of(name, extensions)
        if folders.is_folder(path):
            paths, stem = _texts_in(path, options, extensions) if split_in(name) else [], name
            paths += filter(_is_wiki, inventory.files(path, options))
        else:
            paths = [path] if (extension and not is_document(name)) or _is_wiki(name) else []
        if paths and stem in found:
            raise DataError(
                f"{source} has both {found[stem][0]} and {paths[0]}. Leave one out with --skip"
            )
        if paths:
            found[stem] = paths
    if not found:
        raise DataError(
            f"{where} has no {' or '.join(extensions)} file, plain or with "
            f"{' or '.join(PACKED)}, and no wiki_00 of WikiExtractor"
        )
    others = [name for name in found if not split_in(name)]
    if _are_titles(found):
        return {"train": [path for paths in found.values() for path in paths]}
    if others:
        raise DataError(
            f"{found[others[0]][0]} belongs to no split, but other files do, such as "
            f"{next(name for name in found if split_in(name))!r}: name it train.txt, dev.txt or "
            "test.txt, move it to a folder of that name, or leave it out with --skip"
        )
    return {ours: found[name] for ours, name in split_names(found, where).items()}


def _are_titles(found):
    """Whether names have no splits; a few of many may have such a word, as titles of books do."""
    with_splits = [name for name in found if split_in(name)]
    if any(map(is_split, found)) or len(with_splits) > _FEW * len(found):
        return False
    if with_splits:
        note(
            f"all {len(found)} texts are of 'train', also {', '.join(with_splits[:3])}: most names "
            "have no split"
        )
    return True


def _is_wiki(path):
    return bool(_WIKI.fullmatch(split_packed(os.path.basename(path))[0]))


def _texts_in(folder, options, extensions):
    names = inventory.names(folder, options)
    return [os.path.join(folder, name) for name in names if stem_of(name, extensions)[1]]
