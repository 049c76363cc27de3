"""Files in one folder for each class.

SOURCE/CLASS/anything                    one split, "train"
SOURCE/{train,val,test}/CLASS/...        one split per folder
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection

import numpy as np

from common import folders
from common.names import is_line, printable
from input_fns import DataError
from input_fns.convert.source import Options
from input_fns.convert.split_names import is_split, split_names


@dataclasses.dataclass(frozen=True)
class LabelledFiles:
    """Files of a split.

    Attributes:
      paths: objects `[size]`, paths of the files, local or gs://.
      labels: int64 `[size]`, their classes.
      groups: int `[size]`, equal for several names of one file; None if each has one name.
    """

    paths: np.ndarray
    labels: np.ndarray
    groups: np.ndarray | None


def read(
    options: Options, noun: str, extensions: tuple[str, ...], ignored: Collection[str] = ()
) -> tuple[tuple[str, ...], dict[str, LabelledFiles]]:
    """Returns the class names and `{split: files}`; classes are sorted unless they are given.

    Follows links, visits each folder once, and keeps a file with several names in one split.

    Args:
      options: `source` and `class_names` are used.
      noun: what the files are, for errors.
      extensions: ends of their names, in lower case.
      ignored: names of folders that are not classes.

    Raises:
      DataError: there are no classes, the splits have different classes, a class has no file, or
        a file is in two classes or two splits.
    """
    found = _folders(options.source, ignored)
    if found and all(map(is_split, found)):
        names = split_names(found, f"--source={options.source}")
        splits = {ours: os.path.join(options.source, name) for ours, name in names.items()}
    else:
        splits = {"train": options.source}
    reference = splits.get("train") or next(iter(splits.values()))
    class_names = options.class_names or tuple(_folders(reference, ignored))
    if len(class_names) < 2:
        raise DataError(
            f"--source={options.source} should have a folder for each class, "
            f"and has {len(class_names)}"
        )
    for folder in splits.values():
        _check_classes(folder, class_names, ignored)
    roots = _roots(options.source, splits.values(), class_names)
    seen = {}

    def list_files(folder):
        return _files(folder, set(roots), noun, extensions)

    return class_names, {
        name: _read_split(folder, class_names, list_files, seen) for name, folder in splits.items()
    }


def _check_classes(folder, class_names, ignored):
    found = set(_folders(folder, ignored))
    if found != set(class_names):
        missing, more = sorted(set(class_names) - found), sorted(found - set(class_names))
        raise DataError(
            f"{folder} should have the classes {', '.join(class_names)}; "
            f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(more) or 'none'}"
        )


def _roots(source, splits, class_names):
    """Returns the identities of the folders of all classes and splits."""
    paths = [os.path.join(split, name) for split in splits for name in class_names]
    paths += [] if source in splits else splits
    path_of = {folders.identity(source): source}
    for path in paths:
        first = path_of.setdefault(folders.identity(path), path)
        if first != path:
            raise DataError(f"{path} and {first} are the same folder")
    return set(path_of)


def _read_split(folder, class_names, list_files, seen):
    """Returns a split; `seen` is `{identity: (path, split and class)}` of the files so far."""
    paths, labels, groups = [], [], {}
    for label, name in enumerate(class_names):
        for path in list_files(os.path.join(folder, name)):
            identity = folders.identity(path)
            first, place = seen.setdefault(identity, (path, (folder, name)))
            if place != (folder, name):
                raise DataError(
                    f"{printable(path)} and {printable(first)} are the same file, which cannot be "
                    "in two classes or in two splits"
                )
            groups.setdefault(identity, len(groups))
            paths.append(path)
            labels.append(label)
    twice = len(groups) < len(paths)
    numbers = np.array([groups[folders.identity(path)] for path in paths]) if twice else None
    return LabelledFiles(np.array(paths, object), np.array(labels, np.int64), numbers)


def _files(folder, visited, noun, extensions):
    found = [path for path in folders.files(folder, visited) if path.lower().endswith(extensions)]
    if not found:
        raise DataError(f"{folder} holds no {noun}: no file ends in {', '.join(extensions)}")
    return sorted(found)


def _folders(path, ignored):
    if not folders.is_folder(path):
        raise DataError(f"--source={path} is not a folder")
    found = [
        name
        for name in folders.names(path)
        if not name.startswith(".")
        and name not in ignored
        and folders.is_folder(os.path.join(path, name))
    ]
    for name in found:
        if not is_line(name):
            raise DataError(
                f"{path} has a folder {name!a}, which cannot be the name of a class: it must be "
                "UTF-8 without control characters"
            )
    return found
