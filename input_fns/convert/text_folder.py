"""Text files in one folder for each class: SOURCE/train/CLASS/*.txt, SOURCE/test/CLASS/*.txt.

Without folders of splits, SOURCE/CLASS/*.txt is "train".
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from common import folders
from common.names import printable
from input_fns import DataError
from input_fns.convert import text_files
from input_fns.convert.files import PACKED, read_text, split_packed
from input_fns.convert.source import Options, RawDataset
from input_fns.convert.split_names import is_split, split_names
from input_fns.convert.text_files import CLASSIFICATION, LabelledTable


def read(options: Options) -> RawDataset:
    """Returns a split per folder, with its folders as classes.

    Args:
      options: `source`; `class_names` are the folders to read, in the order of the classes;
        default: all, sorted.

    Raises:
      DataError: there is no text, or a file is empty or not UTF-8.
    """
    splits = [name for name in _folders(options.source) if is_split(name)]
    names = split_names(splits, f"--source={options.source}")
    places = {ours: os.path.join(options.source, name) for ours, name in names.items()}
    places = places or {"train": options.source}
    classes = options.class_names or sorted({c for path in places.values() for c in _folders(path)})
    if len(classes) < 2:
        raise DataError(
            f"--source={options.source} should have a folder for each class, and has {len(classes)}"
        )
    found = {ours: read_split(path, classes) for ours, path in places.items()}
    return text_files.to_dataset(options, found, CLASSIFICATION, classes)


def _folders(path):
    return [
        name
        for name in folders.names(path)
        if not name.startswith(".") and folders.is_folder(os.path.join(path, name))
    ]


def read_split(path: str, classes: Sequence[str]) -> LabelledTable:
    """Returns the texts of PATH/CLASS/*.txt, plain, .gz or .xz, in the order of their names.

    Raises:
      DataError: a class has no text, or a file is empty or not UTF-8.
    """
    places, texts, labels = [], [], []
    for name in classes:
        folder = os.path.join(path, name)
        files = [f for f in folders.names(folder) if split_packed(f)[0].endswith(".txt")]
        if not files:
            raise DataError(
                f"{printable(folder)} has no .txt file, plain or with {' or '.join(PACKED)}"
            )
        for file in files:
            place = os.path.join(folder, file)
            text = read_text(place)
            if not text.strip():
                raise DataError(f"{printable(place)}: no text. Remove the file, or add text")
            places.append(printable(place))
            texts.append(text)
            labels.append(name)
    return LabelledTable(places, (texts,), labels)
