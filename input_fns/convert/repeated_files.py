"""Files in folders of several classes, which are one example with several labels.

The files of one picture are links to it, or copies under any name: they have the same bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter

import numpy as np

from common import folders
from input_fns.convert import files
from input_fns.convert.archive_members import Member, MemberError
from input_fns.convert.class_folders import Found, LabelledFiles
from input_fns.convert.source import numbered
from input_fns.core.target import FEATURE, Target

_PIECE_BYTES = 1 << 20


def join(found: Found) -> Found:
    """Returns the files of each split with the labels of all their classes, as a target.

    Args:
      found: files with one class each, in which a picture may be repeated.

    Raises:
      DataError: a name of a class is invalid.
    """
    target = Target("multilabel", found.class_names)
    target.validate(FEATURE)
    splits = {name: _joined(each, len(found.class_names)) for name, each in found.splits.items()}
    before, after = (sum(len(each.paths) for each in of.values()) for of in (found.splits, splits))
    files.note(
        f"{before - after} of {before} files have the same bytes as another one: each image is one "
        "example with the labels of all its folders"
    )
    return dataclasses.replace(found, class_names=(), splits=splits, target=target)


def _joined(split: LabelledFiles, num_classes: int) -> LabelledFiles:
    """Returns a split with an example for each content, in the order of the first files."""
    if split.labels is None:
        targets = np.full([len(split.paths), num_classes], np.nan, np.float32)
        return dataclasses.replace(split, targets=targets)
    numbers = numbered(_contents(split), len(split.paths))
    _, first = np.unique(numbers, return_index=True)
    targets = np.zeros([len(first), num_classes], np.float32)
    targets[numbers, split.labels] = 1
    return dataclasses.replace(
        split,
        paths=split.paths[first],
        labels=None,
        groups=None,
        ranges=None if split.ranges is None else split.ranges[first],
        targets=targets,
    )


def _contents(split):
    """Yields a key of each file, equal for files with the same bytes."""
    if split.ranges is not None:
        for path, (archive, offset, size) in zip(split.paths, split.ranges.tolist()):
            yield _digest(Member(path, split.archives[archive], offset, size))
        return
    sizes = [_size(path) for path in split.paths]
    counts = Counter(sizes)
    for path, size in zip(split.paths, sizes):
        yield path if counts[size] == 1 else _digest(path)


def _size(path):
    try:
        return folders.num_bytes(path)
    except folders.errors(path):  # its reader says that it is missing
        return None


def _digest(path):
    """Returns the digest of a file; its path if it cannot be read, which its reader reports."""
    digest = hashlib.sha256()
    try:
        with files.open_file(path) as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
    except (*folders.errors(path), MemberError):
        return path
    return digest.digest()
