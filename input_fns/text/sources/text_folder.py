"""Text files in one folder for each class: SOURCE/train/CLASS/*.txt, SOURCE/test/CLASS/*.txt.

In a folder without .txt, files whose names are numbers are texts, as in 20 Newsgroups. Without
folders of splits, SOURCE/CLASS/*.txt is "train". Texts without classes, SOURCE/test/*.txt,
can be predicted.
"""

from __future__ import annotations

import os

from common import folders
from common.names import normalized, printable, sorted_labels
from input_fns import DataError
from input_fns.convert import inventory
from input_fns.convert.files import PACKED, read_text
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset
from input_fns.convert.split_names import is_split, split_in, split_names, stem_of
from input_fns.text.sources import text_files
from input_fns.text.sources.text_files import CLASSIFICATION, LabelledTable


def read(options: Options) -> RawDataset:
    """Returns a split per folder, with its folders as classes.

    Args:
      options: `source`; `class_names` are the folders to read, in the order of the classes;
        default: all, sorted.

    Raises:
      DataError: there is no text, a class has none, or a file has another encoding.
    """
    places = _split_folders(options)
    subfolders = {path: inventory.subfolders(path, options) for path in places.values()}
    # macOS decomposes names.
    names = {normalized(name) for found in subfolders.values() for name in found}
    classes = tuple(map(normalized, options.class_names)) or tuple(sorted_labels(names))
    if len(classes) < 2:
        found = f": {', '.join(map(printable, classes))}" if classes else ""
        raise DataError(
            f"--source={options.source} should have a folder for each class, and has "
            f"{len(classes)}{found}. --source is the folder that has the classes or the splits"
        )
    found, empty = {}, []
    for split, path in places.items():
        to_predict = split != "train" and not subfolders[path]
        of_classes = {
            name: [f for f in subfolders[path] if normalized(f) == name] or [name]
            for name in classes
        }
        found[split] = _read_split(path, None if to_predict else of_classes, options, empty)
    raw = text_files.to_dataset(options, found, CLASSIFICATION, classes)
    for path in empty:
        raw.left_out.add("files without a text", path)
    return raw


def _split_folders(options):
    """Returns `{split: folder}`; --source is "train" if it has no folders of splits."""
    found = inventory.subfolders(options.source, options)
    splits = [name for name in found if is_split(name)]
    if not splits and all(map(split_in, found)):  # 20news-bydate-train
        splits = found
    others = [name for name in found if name not in splits]
    if splits and others:
        raise DataError(
            f"--source={options.source} has the folders {', '.join(splits)} of splits, and "
            f"'{others[0]}', which is none. Leave it out with --skip"
        )
    names = split_names(splits, f"--source={options.source}")
    found = {ours: os.path.join(options.source, name) for ours, name in names.items()}
    return found or {"train": options.source}


def _read_split(path, folders_of, options, empty):
    """Returns the texts of PATH/CLASS/*.txt, plain, .gz or .xz, in the order of their names.

    `folders_of` is `{class: names of its folders}`, None for texts without classes, PATH/*.txt.
    `empty` receives the paths of files without a text. Texts to predict must have one.
    """
    places, texts, labels = [], [], []
    for name, below in {"": [""]}.items() if folders_of is None else folders_of.items():
        files = [place for folder in below for place in _files(os.path.join(path, folder), options)]
        for place in files:
            text = read_text(place, options.encoding)
            if text.strip():
                places.append(printable(place))
                texts.append(text)
                labels.append(name)
            elif folders_of is None:
                raise DataError(f"{printable(place)}: no text. Remove the file, or add text")
            else:
                empty.append(place)
        if not files:
            raise DataError(
                f"{printable(os.path.join(path, below[0]))} has no .txt file, plain or with "
                f"{' or '.join(PACKED)}. Each class needs texts in each split: leave others out "
                "with --skip, or name the classes with --class_names"
            )
    return LabelledTable(places, (texts,), None if folders_of is None else labels)


def _files(folder, options):
    names = inventory.names(folder, options)
    found = [name for name in names if stem_of(name, (".txt",))[1]]
    if not found:  # 20 Newsgroups
        found = [
            name
            for name in names
            if name.isdecimal() and not folders.is_folder(os.path.join(folder, name))
        ]
    return [os.path.join(folder, name) for name in found]
