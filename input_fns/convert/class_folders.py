"""Files in one folder for each class.

SOURCE/CLASS/anything                    one split, "train"
SOURCE/{train,val,test}/CLASS/anything   one split per folder; a split without classes is predicted
SOURCE/CLASS/{train,val,test}/anything   the same with the classes first
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection

import numpy as np

from common import folders
from common.names import normalized, printable, sorted_labels
from input_fns import DataError
from input_fns.convert import inventory
from input_fns.convert.folder_structure import Reader, Tree, listed
from input_fns.convert.options import Options
from input_fns.convert.split_names import is_split
from input_fns.core.target import Target
from input_fns.dataset_info import LeftOut

NOT_NAMED = "files of classes that --class_names does not name"


@dataclasses.dataclass(frozen=True)
class LabelledFiles:
    """Files of a split.

    Attributes:
      paths: objects `[size]`, paths of the files, local or gs://.
      labels: int64 `[size]`, their classes; None to predict them.
      targets: float32 `[size, n]`, instead of labels, of `Found.target`; NaN to predict them.
      groups: `[size]`, equal for files that must stay in one split, such as several names of one
        file; None if each is its own.
      archives: paths of the archives that have the files; () if they are files themselves.
      ranges: int64 `[size, 3]`, number of the archive, offset and size in bytes; None without
        archives.
    """

    paths: np.ndarray
    labels: np.ndarray | None
    groups: np.ndarray | None
    archives: tuple[str, ...] = ()
    ranges: np.ndarray | None = None
    targets: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Found:
    """What is in a source.

    Attributes:
      class_names: names of the classes in their order.
      splits: `{split: files}`.
      left_out: `{path: reason}` of files that are not used.
      left_out_inside: those in archives.
      target: what is predicted, if it is not one class.
    """

    class_names: tuple[str, ...]
    splits: dict[str, LabelledFiles]
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)
    left_out_inside: LeftOut = dataclasses.field(default_factory=LeftOut)
    target: Target | None = None


def find(
    options: Options, noun: str, extensions: tuple[str, ...], ignored: Collection[str] = ()
) -> Found:
    """Returns the files of each split with their classes, which are sorted unless they are given.

    Follows links, visits each folder once, and keeps a file with several names in one split.

    Args:
      options: `source`, `skip` and `class_names` are used. Files of classes that `class_names` does
        not have are left out.
      noun: what the files are, for errors.
      extensions: ends of their names, in lower case.
      ignored: names of folders that are not classes.

    Raises:
      DataError: the folders are not understood, there are less than two classes, the splits have
        different classes, a class has no file, or a file is in two classes or two splits.
    """
    reader = Reader(options, noun, extensions, ignored, Tree(options))
    structure = reader.read()
    splits = structure.classes
    reference = splits.get("train") or next(iter(splits.values()))
    class_names = tuple(map(normalized, options.class_names)) or tuple(sorted_labels(reference))
    if len(class_names) < 2:
        only = reader.only_folder()
        hint = f". Choose --source={only}" if only and not is_split(os.path.basename(only)) else ""
        if not class_names:
            table = options.dataset.replace("folder", "csv")
            hint = f". If a table has the {noun}s and their labels, use --dataset={table}"
        raise DataError(
            f"--source={options.source} should have a folder for each class, and has "
            f"{len(class_names)} ({listed(class_names) or f'no folder with {noun}s'}){hint}"
        )
    for name, of_class in splits.items():
        where = f"the split '{name}' of {options.source}"
        check_classes(where, of_class, class_names, bool(options.class_names))
    roots = _roots(options.source, structure)
    seen: dict[object, tuple[str, str, str]] = {}

    def files(folder):
        paths = inventory.files(folder, options, roots)
        return sorted(path for path in paths if reader.is_file(os.path.basename(path)))

    def labelled(split, of_class):
        paths = {name: files(of_class[name]) for name in class_names}
        for name, inside in paths.items():
            if not inside and of_class is reference:
                raise DataError(
                    f"{of_class[name]} holds no {noun}: no file ends in {', '.join(extensions)}. "
                    f"Leave it out with --skip={os.path.basename(of_class[name])}"
                )
        labels = np.repeat(np.arange(len(paths)), [len(inside) for inside in paths.values()])
        return _labelled(split, paths, labels.astype(np.int64), seen, options.task)

    found = {name: labelled(name, of_class) for name, of_class in splits.items()}
    for name, folder in structure.unlabelled.items():
        found[name] = _labelled(name, {"": files(folder)}, None, seen, options.task)
    return Found(class_names, found, _not_named(options, found, reader))


def check_classes(
    where: str, of_class: Collection[str], class_names: Collection[str], is_chosen: bool
) -> None:
    """Checks that the classes of a split are those of the data set; more if they are chosen.

    Raises:
      DataError: a class is missing, or is not in the data set.
    """
    missing = sorted_labels(set(class_names) - set(of_class))
    unknown = [] if is_chosen else sorted_labels(set(of_class) - set(class_names))
    if missing or unknown:
        hint = f"its folders are {listed(of_class)}; a class without files needs an empty folder"
        if unknown:
            hint = f"leave others out with --skip={unknown[0]}, or choose some with --class_names"
        raise DataError(
            f"{where} should have the classes {listed(class_names)}; missing: "
            f"{listed(missing) or 'none'}; unknown: {listed(unknown) or 'none'}; {hint}"
        )


def _roots(source, structure):
    """Returns the identities of the folders of all classes and splits."""
    paths = [path for of_class in structure.classes.values() for path in of_class.values()]
    parents = {os.path.dirname(path) for path in paths} - {source}
    path_of = {folders.identity(source): source}
    for path in (*paths, *sorted(parents), *structure.unlabelled.values()):
        first = path_of.setdefault(folders.identity(path), path)
        if first != path:
            raise DataError(f"{path} and {first} are the same folder")
    return set(path_of)


def _labelled(split, paths_of, labels, seen, task):
    """Returns a split; `seen` is `{identity: (path, split, class)}` of the files so far."""
    number_of: dict[object, int] = {}
    paths, numbers = [], []
    for name, inside in paths_of.items():
        for path in inside:
            identity = folders.identity(path)
            first, its_split, its_class = seen.setdefault(identity, (path, split, name))
            if its_split != split or (its_class != name and task != "multilabel"):
                hint = "" if its_split != split else ". Several labels: --task=multilabel"
                raise DataError(
                    f"{printable(path)} and {printable(first)} are the same file, which cannot be "
                    f"in two classes or in two splits{hint}"
                )
            numbers.append(number_of.setdefault(identity, len(number_of)))
            paths.append(path)
    groups = np.array(numbers) if len(number_of) < len(paths) else None
    return LabelledFiles(np.array(paths, object), labels, groups)


def _not_named(options, found, reader):
    """Returns `{path: reason}` of files of other classes than those of --class_names."""
    if not options.class_names:
        return {}
    used = {path for files in found.values() for path in files.paths}
    return {
        path: NOT_NAMED
        for path in inventory.files(options.source, options)
        if path not in used and reader.is_file(os.path.basename(path))
    }
