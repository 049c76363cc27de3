"""Folders of the splits below --source, by patterns such as "images/{split}"."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable

from common import folders
from common.names import normalized, printable
from input_fns import DataError
from input_fns.convert import inventory
from input_fns.convert.options import Options
from input_fns.convert.split_names import split_in, split_of

SPLIT = "{split}"
_NUMBER = re.compile(r"[\W\d_]+$")  # the year of "train2017"


@dataclasses.dataclass
class Found:
    """Folders that match a pattern.

    Attributes:
      of_split: `{split: path}`; "train" if the pattern has no {split}.
      others: paths of folders whose names mean no split.
    """

    of_split: dict[str, str] = dataclasses.field(default_factory=dict)
    others: list[str] = dataclasses.field(default_factory=list)


def split_of_folder(name: str) -> str:
    """Returns the split that the name of a folder means, such as "Valid" or "train2017"; or ""."""
    return split_of(name) or split_of(_NUMBER.sub("", normalized(name)))


def splits_of_folders(names: Iterable[str]) -> dict[str, str]:
    """Returns `{name: split}` of folders beside each other; "" of those that mean none.

    "train_set" is of the split 'train' if no other folder means it.
    """
    found = {name: split_of_folder(name) for name in names}
    words = {name: split_in(name) for name, split in found.items() if not split}
    several = [*found.values(), *words.values()]
    is_alone = {name: split for name, split in words.items() if several.count(split) == 1}
    return {name: split or is_alone.get(name, "") for name, split in found.items()}


def child(folder: str, names: tuple[str, ...], options: Options) -> str:
    """Returns the path of the first of `names` that is a folder in `folder`, in any case; or ""."""
    inside = {normalized(name).lower(): name for name in inventory.names(folder, options)}
    for name in names:
        path = os.path.join(folder, inside.get(name, ""))
        if name in inside and folders.is_folder(path):
            return path
    return ""


def find(pattern: str, options: Options) -> Found:
    """Returns the folders below --source that match a pattern.

    Args:
      pattern: names of folders, joined by "/", in any case; {split} stands for the name of a split.
      options: `source` and `skip` are used.

    Raises:
      DataError: two folders are of one split.
    """
    paths = [("", "/" if pattern.startswith("/") else options.source)]
    for part in filter(None, pattern.split("/")):
        paths = [
            (word or before, path)
            for before, folder in paths
            for word, path in _matching(folder, part, options)
        ]
    found = Found()
    split_of_word = splits_of_folders(word for word, _ in paths)
    for word, path in paths:
        split = split_of_word[word] if SPLIT in pattern else "train"
        if not split:
            found.others.append(path)
        elif found.of_split.setdefault(split, path) != path:
            raise DataError(
                f"{printable(found.of_split[split])} and {printable(path)} are both of the split "
                f"'{split}'. Leave one out with --skip={os.path.basename(path)}"
            )
    return found


def _matching(folder, part, options):
    """Yields (word at {split} or "", path) of the folders in a folder that match a name."""
    if part in (".", ".."):
        yield "", folder if part == "." else os.path.join(folder, part)
        return
    before, has_split, after = part.partition(SPLIT)
    inside = inventory.names(folder, options)
    if not has_split and part in inside:
        inside = [part]
    expected = re.compile(
        f"{re.escape(before)}{'(.+)' if has_split else '()'}{re.escape(after)}", re.IGNORECASE
    )
    for name in inside:
        match = expected.fullmatch(normalized(name))
        path = os.path.join(folder, name)
        if match and folders.is_folder(path):
            yield match[1], path


def require_known(found: Found, extensions: tuple[str, ...], options: Options) -> None:
    """Checks that no folder beside those of the splits has files with these extensions.

    Raises:
      DataError: a folder of another name has such files.
    """
    if not found.of_split:
        return
    for folder in found.others:
        if any(path.lower().endswith(extensions) for path in inventory.files(folder, options)):
            known = {split: _parts(path, options) for split, path in found.of_split.items()}
            parts = _parts(folder, options)
            # The part at {split}, which is not the last one of "{split}/annotations".
            columns = enumerate(zip(parts, *known.values()))
            place = next((i for i, (mine, *its) in columns if mine not in its), -1)
            understood = ", ".join(f"{other[place]} is '{s}'" for s, other in known.items())
            name = parts[place]
            raise DataError(
                f"the name of {printable(folder)} is not that of a split, while {understood}. "
                f"Rename it to train, validation or test, or leave it out with --skip={name}"
            )


def _parts(path, options):
    """Returns the names of the folders of a path below --source."""
    return path[len(options.source) :].strip("/").split("/")


def require_none_inside(folder: str, stems: Iterable[str], flag: str) -> None:
    """Checks that the files of one split are not in folders that are named as splits.

    Args:
      folder: their folder.
      stems: their paths below it.
      flag: flag that names folders of splits.

    Raises:
      DataError: a folder has the name of a split.
    """
    inside = dict.fromkeys(os.path.dirname(stem) for stem in stems)
    split_of_path = split_of_paths(inside)
    for path in inside:
        if split_of_path[path]:
            parts = path.split("/")
            named = next(filter(split_of_folder, parts), None) or next(filter(split_in, parts))
            pattern = "/".join(SPLIT if part == named else part for part in parts)
            raise DataError(
                f"{folder} has files in {path}, which is named as a split, and not all folders are "
                f"understood. Name them, such as --{flag}={pattern}"
            )


def split_of_paths(paths: Iterable[str]) -> dict[str, str]:
    """Returns `{path: split}` by the first folder in a path that is named as a split; "" if none.

    "DET-train" is such a folder if others, such as "DET-val", are of other splits.
    """
    found = {path: next(filter(None, map(split_of_folder, path.split("/"))), "") for path in paths}
    words = {path: next(filter(None, map(split_in, path.split("/"))), "") for path in found}
    is_clear = not any(found.values()) and len({*words.values()} - {""}) > 1
    return words if is_clear else found
