"""Files with classes in tar and zip archives, as if each archive were a folder.

SOURCE/{train,val,test}.zip with CLASS/anything   one split per archive
SOURCE/CLASS.tar, SOURCE/SPLIT/CLASS.tar          an archive for each class
SOURCE.zip                                        with folders as `class_folders`
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from common import folders
from common.names import normalized, printable, sorted_labels
from input_fns import DataError
from input_fns.convert import archives as archive_files
from input_fns.convert import class_folders, inventory
from input_fns.convert.archive_members import ENDINGS
from input_fns.convert.class_folders import Found, LabelledFiles
from input_fns.convert.folder_structure import listed
from input_fns.convert.options import Options
from input_fns.convert.split_names import is_split, split_in, split_names
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
    splits = {
        split: _by_class(inside, f"the split '{split}' of {options.source}")
        for split, inside in _by_split(found, where).items()
    }
    for split, of_class in splits.items():
        if "" in of_class and (split == "train" or len(of_class) > 1):
            raise DataError(
                f"{where}: the split '{split}' has {noun}s that are in no folder of a class, such "
                f"as {printable(min(of_class['']))}"
            )
    reference = splits.get("train") or next(iter(splits.values()))
    class_names = tuple(map(normalized, options.class_names)) or tuple(
        sorted_labels(filter(None, reference))
    )
    if len(class_names) < 2:
        raise DataError(
            f"{where} should have a folder or an archive for each class, and has "
            f"{len(class_names)} ({listed(class_names) or f'only {noun}s'})"
        )
    labelled = {}
    for split, of_class in splits.items():
        if "" in of_class:
            in_order = {name: found[name] for name in sorted(of_class[""])}
            labelled[split] = in_archives(options, archives, in_order, None)
            continue
        at = f"the split '{split}' of {options.source}"
        class_folders.check_classes(at, of_class, class_names, bool(options.class_names))
        for name in sorted(of_class.keys() - set(class_names)):
            left_out.add(class_folders.NOT_NAMED, min(of_class[name]), len(of_class[name]))
        inside = [sorted(of_class[name]) for name in class_names]
        labels = np.repeat(np.arange(len(inside)), list(map(len, inside)))
        in_order = {name: found[name] for of_one in inside for name in of_one}
        labelled[split] = in_archives(options, archives, in_order, labels.astype(np.int64))
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


def _by_split(found, where):
    """Returns `{split: {name: its parts below the folder of the split}}`."""
    parts = _without_root({name: name.split("/") for name in found})
    tops = dict.fromkeys(normalized(of[0]) for of in parts.values() if len(of) > 1)
    if not any(map(is_split, tops)) and not all(map(split_in, tops)):
        return {"train": parts}
    unknown = [top for top in tops if not split_in(top)]
    if unknown or any(len(of) == 1 for of in parts.values()):
        raise DataError(
            f"{where} has archives or folders of splits, and others: {listed(unknown)}. Leave "
            f"these out with --skip"
        )
    splits = {top: split for split, top in split_names(tops, where).items()}
    inside: dict[str, dict[str, list[str]]] = {split: {} for split in splits.values()}
    for name, of in parts.items():
        inside[splits[normalized(of[0])]][name] = of[1:]
    return {split: _without_root(of_split) for split, of_split in inside.items()}


def _without_root(parts):
    """Removes the only folder of all files if it is not that of a split and has folders only."""
    while True:
        tops = {of[0] for of in parts.values()}
        if len(tops) > 1 or split_in(min(tops)) or min(map(len, parts.values())) < 3:
            return parts
        parts = {name: of[1:] for name, of in parts.items()}


def _by_class(parts, where):
    """Returns `{class: names of its files}`; "" is the class of files without a folder."""
    found: dict[str, list[str]] = {}
    folder_of: dict[str, str] = {}
    for name, of in parts.items():
        top = of[0] if len(of) > 1 else ""
        label = normalized(top)
        if folder_of.setdefault(label, top) != top:
            raise DataError(f"{where} has two folders of one name, {printable(label)}. Join them")
        found.setdefault(label, []).append(name)
    return found
