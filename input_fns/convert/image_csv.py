"""Images and labels listed in a CSV file, as on Kaggle.

A row has a file name, with or without extension, and its label: in one column, or one-hot in one
column per class.
"""

from __future__ import annotations

import os

import numpy as np

from common import folders
from common.names import is_line, repeated
from input_fns import DataError
from input_fns.convert import decoded_images, tables
from input_fns.convert.image_files import ImageFiles
from input_fns.convert.source import Options, RawDataset
from input_fns.convert.split_names import split_names


def read(options: Options) -> RawDataset:
    """Returns the split "train", or the splits of `split_column`.

    Args:
      options: `source` is the folder of the images, `csv` the file. `image_column` defaults to the
        first column, `label_columns` to all others.

    Raises:
      DataError: a column or a file is missing, or a row has no label or an unknown one.
    """
    path = options.csv
    columns, rows = _table(path)
    image_column = options.image_column or next(iter(columns), "")
    kept = {image_column, options.group_column, options.split_column}
    label_columns = options.label_columns or tuple(name for name in columns if name not in kept)
    for name in [image_column, options.group_column, options.split_column, *label_columns]:
        if name and name not in columns:
            raise DataError(f"{path} has no column '{name}'; it has: {', '.join(columns)}")
    if not rows or not label_columns:
        raise DataError(
            f"{path} has {len(rows)} rows and {len(label_columns)} label columns; its columns, "
            f"separated by commas: {', '.join(columns)}"
        )
    texts = [_label(where, row, label_columns) for where, row in rows]
    class_names = options.class_names or _class_names(label_columns, texts)
    find = _Finder(options.source)
    paths = np.array([find(where, row[image_column]) for where, row in rows], object)
    groups = _column(rows, options.group_column)
    split_of = _column(rows, options.split_column)
    number_of = {}  # {file identity: number}
    numbers = [number_of.setdefault(folders.identity(path), len(number_of)) for path in paths]
    for values in (texts, groups, split_of):
        _check_alike(rows, paths, numbers, values)
    if groups is None and len(number_of) < len(paths):
        groups = np.array(numbers)  # keep duplicates of an image in one split
    split = ImageFiles(paths, _to_labels(rows, texts, class_names), options, groups)
    splits = {"train": split}
    if options.split_column:
        names = split_names(dict.fromkeys(split_of), f"{path}, column '{options.split_column}'")
        splits = {
            ours: split.take(np.flatnonzero(split_of == name)) for ours, name in names.items()
        }
    return RawDataset(options.dataset, class_names, splits)


def _table(path):
    """Returns the column names, and `(place, {column: value})` of each row."""
    lines = tables.read_csv(path)
    columns = lines.pop(0)[1] if lines else []
    twice = repeated(filter(None, columns))
    if twice:
        raise DataError(f"{path} has more than one column '{twice[0]}'")
    rows = []
    for number, values in lines:
        where = f"{path}, line {number}"
        if len(values) != len(columns):
            raise DataError(f"{where}: {len(values)} values in {len(columns)} columns")
        rows.append((where, dict(zip(columns, values))))
    return columns, rows


def _label(where, row, columns):
    if len(columns) == 1:
        label = row[columns[0]]
        if not label:
            raise DataError(f"{where}: no label in column '{columns[0]}'")
        if not is_line(label):
            raise DataError(f"{where}: the label {label!a} has control characters")
        return label
    ones = [name for name in columns if row[name] in ("1", "1.0")]
    others = [name for name in columns if row[name] not in ("0", "0.0", "1", "1.0")]
    if len(ones) != 1 or others:
        values = ", ".join(f"{name}={row[name]}" for name in columns)
        raise DataError(
            f"{where}: exactly one of the label columns should be 1 and the others 0: {values}. "
            "--label_columns says which columns are labels"
        )
    return ones[0]


def _check_alike(rows, paths, numbers, values):
    """Checks that duplicates of an image have the same label, group and split."""
    first = {}
    for (where, _), path, number, value in zip(
        rows, paths, numbers, [] if values is None else values
    ):
        before, other = first.setdefault(number, (where, value))
        if value != other:
            raise DataError(f"{where}: {path} is '{value}', and '{other}' at {before}")


def _class_names(label_columns, texts):
    return tuple(label_columns) if len(label_columns) > 1 else tuple(sorted(set(texts)))


def _to_labels(rows, texts, class_names):
    numbers = {name: number for number, name in enumerate(class_names)}
    for (where, _), text in zip(rows, texts):
        if text not in numbers:
            raise DataError(
                f"{where}: unknown label '{text}'; the classes are {', '.join(class_names)}"
            )
    empty = [name for name in class_names if name not in set(texts)]
    if empty:
        raise DataError(f"no row has the label {', '.join(empty)}")
    return np.array([numbers[text] for text in texts], np.int64)


def _column(rows, name):
    return np.array([row[name] for _, row in rows], object) if name else None


class _Finder:
    """Finds the image file of a row, with or without extension."""

    def __init__(self, folder):
        self._folder = folder
        # For gs:// paths too; no file is accessed.
        self._root = os.path.abspath(folder.partition("://")[2] or folder)
        self._listed = {}

    def __call__(self, where, name):
        path = os.path.normpath(os.path.join(self._root, name))
        if os.path.commonpath([path, self._root]) != self._root:
            raise DataError(f"{where}: the image {name!a} is outside of --source={self._folder}")
        folder, base = os.path.split(os.path.join(self._folder, os.path.relpath(path, self._root)))
        if folder not in self._listed:  # list each folder once
            names = folders.names(folder)
            in_lower_case = {_in_lower_case(name): name for name in names}
            self._listed[folder] = {**in_lower_case, **{name: name for name in names}}
        listed = self._listed[folder]
        for extension in ("", *decoded_images.EXTENSIONS):
            found = listed.get(base + extension) or listed.get(_in_lower_case(base + extension))
            if base and found:
                return os.path.join(folder, found)
        raise DataError(f"{where}: no image '{name}' in {self._folder}")


def _in_lower_case(name):
    """Returns a file name with its extension in lower case."""
    stem, extension = os.path.splitext(name)
    return stem + extension.lower()
