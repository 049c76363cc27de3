"""Files with classes in tar and zip archives, as if each archive were a folder.

SOURCE/{train,val,test}.zip with CLASS/anything   one split per archive
SOURCE/CLASS.tar, SOURCE/SPLIT/CLASS.tar          an archive for each class
SOURCE.zip                                        with folders as `class_folders`
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from common import folders
from common.names import normalized, printable, sorted_labels
from input_fns import DataError
from input_fns.convert import archives as archive_files
from input_fns.convert import class_folders, inventory
from input_fns.convert.archive_members import ENDINGS
from input_fns.convert.class_folders import Found, LabelledFiles
from input_fns.convert.folder_structure import Reader, Tree, listed
from input_fns.convert.options import Options
from input_fns.convert.split_names import split_in
from input_fns.dataset_info import LeftOut

# Number of the archive, offset and size.
Range = tuple[int, int, int]


def of_source(options: Options) -> list[str]:
    """Returns the archives of a source that has nothing else: its files are in them, or []."""
    source = options.source
    if folders.is_file(source):
        return [source] if source.lower().endswith(ENDINGS) else []
    found = in_folder(source, options)
    for name in inventory.subfolders(source, options):
        inside = in_folder(os.path.join(source, name), options) if split_in(name) else []
        if not inside:
            return []  # folders of classes
        found += inside
    return found


def in_folder(folder: str, options: Options) -> list[str]:
    """Returns the archives in a folder."""
    return [
        os.path.join(folder, name)
        for name in inventory.names(folder, options)
        if name.lower().endswith(ENDINGS)
    ]


def files_of(
    archives: Sequence[str], options: Options, extensions: tuple[str, ...], left_out: LeftOut
) -> dict[str, Range]:
    """Returns `{name: range}` of the files in archives with these extensions.

    The name is the path below --source of a file if the archives were unpacked there, each into a
    folder of its name.

    Raises:
      DataError: see `archives.find`, or a file is in two archives.
    """
    found: dict[str, Range] = {}
    for number, path in enumerate(archives):
        above = os.path.splitext(path[len(options.source) :].lstrip("/"))[0]
        for inside, (offset, size) in archive_files.find(path, left_out).items():
            name = f"{above}/{inside}".lstrip("/")
            is_skipped = any(inventory.is_skipped(part, options) for part in name.split("/"))
            if is_skipped or not name.lower().endswith(extensions):
                left_out.add(inventory.reason_of(name, options), name)
            elif name in found:
                other = archives[found[name][0]]
                raise DataError(f"{printable(name)} is in {path} and in {other}. Leave one out")
            else:
                found[name] = number, offset, size
    return found


def find(
    archives: Sequence[str], options: Options, noun: str, extensions: tuple[str, ...]
) -> Found:
    """Returns the files of each split with their classes.

    `archives` are those of `of_source`; see `class_folders.find` for the other arguments.

    Raises:
      DataError: see there and `files_of`.
    """
    left_out, where = LeftOut(), f"--source={options.source}"
    found = files_of(archives, options, extensions, left_out)
    if not found:
        raise DataError(
            f"{where} has archives without {noun}s: no file in {archives[0]} ends in "
            f"{', '.join(extensions)}"
        )
    tree = _PackedTree(options, found)
    structure = Reader(options, noun, extensions, (), tree).read()
    splits = structure.classes
    reference = splits.get("train") or next(iter(splits.values()))
    class_names = tuple(map(normalized, options.class_names)) or tuple(sorted_labels(reference))
    if len(class_names) < 2:
        raise DataError(
            f"{where} should have a folder or an archive for each class, and has "
            f"{len(class_names)} ({listed(class_names) or f'only {noun}s'})"
        )
    for split, of_class in splits.items():
        at = f"the split '{split}' of {options.source}"
        class_folders.check_classes(at, of_class, class_names, bool(options.class_names))
    chosen = [of_class[name] for of_class in splits.values() for name in class_names]
    inside: dict[str, list[str]] = {path: [] for path in (*chosen, *structure.unlabelled.values())}
    for name in sorted(found):
        folder = tree.folder_above(name, inside)
        if folder:
            inside[folder].append(name)
        elif options.class_names:
            left_out.add(class_folders.NOT_NAMED, name)
        else:
            raise DataError(
                f"{where} has {noun}s that are in no folder of a class, such as {printable(name)}"
            )
    labelled = {}
    for split, of_class in splits.items():
        names = [inside[of_class[name]] for name in class_names]
        labels = np.repeat(np.arange(len(names)), list(map(len, names))).astype(np.int64)
        in_order = {name: found[name] for of_one in names for name in of_one}
        labelled[split] = in_archives(options, archives, in_order, labels)
    for split, folder in structure.unlabelled.items():
        in_order = {name: found[name] for name in inside[folder]}
        labelled[split] = in_archives(options, archives, in_order, None)
    return Found(class_names, labelled, left_out_inside=left_out)


def in_archives(
    options: Options,
    archives: Sequence[str],
    found: Mapping[str, Range],
    labels: np.ndarray | None,
) -> LabelledFiles:
    """Returns a split of files in archives, in the order of `found`; see `files_of`."""
    source = options.source if folders.is_folder(options.source) else f"{options.source}/"
    paths = np.empty(len(found), object)
    paths[:] = [os.path.join(source, name) for name in found]
    ranges = np.array(list(found.values()), np.int64).reshape(-1, 3)
    return LabelledFiles(paths, labels, None, tuple(archives), ranges)


class _PackedTree(Tree):
    """The folders of files in archives, at the paths that `files_of` describes."""

    choose = "unpack the archives and choose --source="

    def __init__(self, options: Options, found: Iterable[str]):
        """Takes the names of the files."""
        super().__init__(options)
        self._root = options.source
        self._names: dict[str, set[str]] = {}
        for name in found:
            path = os.path.join(self._root, name)
            while path != self._root:
                path, last = os.path.split(path)
                if last in self._names.setdefault(path, set()):
                    break
                self._names[path].add(last)

    def names(self, folder: str) -> Sequence[str]:
        """Returns the sorted names in a folder."""
        return sorted(self._names[folder])

    def is_folder(self, path: str) -> bool:
        """Whether a path is a folder."""
        return path in self._names

    def start(self, folder: str) -> str:
        """Returns the folder, or the one below that has all files and is not of another split."""
        split = "" if folder == self._root else split_in(os.path.basename(folder))
        while len(self._names[folder]) == 1:
            (name,) = self._names[folder]
            below = os.path.join(folder, name)
            inside = [os.path.join(below, each) for each in self._names.get(below, ())]
            has_folders_only = inside and all(map(self.is_folder, inside))
            if not has_folders_only or split_in(name) not in ("", split):
                break
            folder = below
        return folder

    def folder_above(self, name: str, chosen: Collection[str]) -> str:
        """Returns the one of the chosen folders that a file is in, or ""."""
        path = os.path.join(self._root, name)
        while path != self._root:
            path = os.path.dirname(path)
            if path in chosen:
                return path
        return ""
