"""Images and labels listed in a table, as on Kaggle.

A row has a file name, with or without extension, and its label: in one column, or one-hot in one
column per class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from common import folders
from common.names import is_line, normalized, one_number, printable, repeated, sorted_labels
from input_fns import DataError
from input_fns.convert import decoded_images, tables
from input_fns.convert.find_files import Finder
from input_fns.convert.image_files import ImageFiles
from input_fns.convert.source import Options, RawDataset
from input_fns.convert.split_names import split_names

_LONGEST_LABEL = 1000  # characters
_ONE, _ZERO = {"true", "1"}, {"false", "0"}


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Rows of a table of images.

    Attributes:
      path: path of the table.
      where: place of each row, for errors.
      columns: `{name: values}`, all without surrounding white space; None of no text.
    """

    path: str
    where: Sequence[str]
    columns: dict[str, list[str | None]]

    def column(self, name: str) -> list[str]:
        """Returns the values of a column, all of which must be there."""
        for where, value in zip(self.where, self.columns[name]):
            if not value:
                raise DataError(f"{where}: no value in column '{name}'. Add it, or remove the row")
        return self.columns[name]


def read(options: Options) -> RawDataset:
    """Returns the split "train", or the splits of `split_column`.

    Args:
      options: `source` is the folder of the images, `csv` the table, whose columns are `columns` if
        it has no header line. `image_column` defaults to the first column, `label_columns` to all
        others.

    Raises:
      DataError: a column or a file is missing, a row has no label or an unknown one, or a group is
        in two splits.
    """
    rows = _rows(options)
    chosen = {
        name: normalized(getattr(options, name))
        for name in ("image_column", "group_column", "split_column")
    }
    image_column = chosen["image_column"] or next(iter(rows.columns), "")
    kept = {*chosen.values(), image_column}
    label_columns = tuple(map(normalized, options.label_columns)) or tuple(
        name for name in rows.columns if name not in kept
    )
    for name in filter(None, (image_column, *chosen.values(), *label_columns)):
        if name not in rows.columns:
            raise DataError(
                f"{rows.path} has no column '{name}'; it has: {tables.listed(list(rows.columns))}. "
                "If its first line is no header, name the columns with --columns"
            )
    if not rows.where or not label_columns:
        raise DataError(
            f"{rows.path} has {len(rows.where)} rows and {len(label_columns)} label columns; its "
            f"columns are: {tables.listed(list(rows.columns))}"
        )
    paths = _paths(options, rows, image_column)
    groups, split_of = (
        np.array(rows.column(chosen[name]), object) if chosen[name] else None
        for name in ("group_column", "split_column")
    )
    names = {"train": None}
    if split_of is not None:
        where = f"{rows.path}, column '{chosen['split_column']}'"
        names = split_names(dict.fromkeys(split_of), where)
    unlabelled = _unlabelled(rows, label_columns, split_of, names)
    texts = [
        ""
        if split_of is not None and split_of[row] in unlabelled
        else _label(where, {name: rows.columns[name][row] for name in label_columns})
        for row, where in enumerate(rows.where)
    ]
    class_names = tuple(map(normalized, options.class_names)) or _class_names(
        rows, label_columns, texts
    )
    number_of: dict[object, int] = {}  # {file identity: number}
    numbers = [number_of.setdefault(folders.identity(path), len(number_of)) for path in paths]
    for values in (texts, groups, split_of):
        _check_alike(rows, paths, numbers, values)
    if groups is not None and split_of is not None:
        _require_one_split(rows, chosen["group_column"], groups, split_of)
    if groups is None and len(number_of) < len(paths):
        groups = np.array(numbers)  # keep duplicates of an image in one split
    whole = ImageFiles(paths, _to_labels(rows, texts, class_names), options, groups)
    splits = {}
    for ours, name in names.items():
        split = whole if name is None else whole.take(np.flatnonzero(split_of == name))
        splits[ours] = dataclasses.replace(split, labels=None) if name in unlabelled else split
    return RawDataset(options.dataset, class_names, splits)


def _rows(options):
    table = tables.read(options.csv, options.columns)
    names = [normalized(name) for name in table.columns]
    twice = repeated(filter(None, names))
    if twice:
        raise DataError(f"{table.path} has more than one column '{twice[0]}'")
    columns = {
        name: [None if row[i] is None else normalized(row[i]) for row in table.rows]
        for i, name in enumerate(names)
    }
    return _Rows(table.path, [table.where(row) for row in range(len(table.rows))], columns)


def _paths(options, rows, column):
    """Returns the path of the image of each row."""
    finder = Finder(options.source, decoded_images.EXTENSIONS)
    paths, missing = [], []
    for where, name in zip(rows.where, rows.columns[column]):
        path = finder.find(name or "")
        if path is None or folders.is_folder(path):
            missing.append(f"{where}: no image '{printable(name or '')}' in {options.source}")
        paths.append(path)
    if missing:
        more = f" (and {len(missing) - 1} more rows)" if missing[1:] else ""
        raise DataError(
            f"{missing[0]}{more}. --source is the folder of the images, --image_column the column "
            f"of their names, here '{column}'"
        )
    return np.array(paths, object)


def _unlabelled(rows, label_columns, split_of, names):
    """Returns the values of the split column of splits, other than "train", that have no labels."""
    if split_of is None:
        return set()
    values = zip(*(rows.columns[name] for name in label_columns))
    labelled = {split for split, labels in zip(split_of, values) if any(labels)}
    return {name for ours, name in names.items() if ours != "train" and name not in labelled}


def _label(where, values):
    """Returns the label of a row; `values` are those of the label columns."""
    if len(values) == 1:
        ((column, label),) = values.items()
        if not label:
            raise DataError(f"{where}: no label in column '{column}'")
        if not is_line(label):
            raise DataError(f"{where}: the label {label[:60]!a} has control characters")
        if len(label) > _LONGEST_LABEL:
            raise DataError(f"{where}: the label '{label[:60]}...' has {len(label)} characters")
        return label
    numbers = {name: _zero_or_one(value) for name, value in values.items()}
    ones = [name for name, number in numbers.items() if number == 1]
    if len(ones) != 1 or None in numbers.values():
        shown = tables.listed([f"{name}={value}" for name, value in values.items()])
        raise DataError(
            f"{where}: exactly one of the label columns should be 1 and the others 0: {shown}. "
            "--label_columns says which columns are labels"
        )
    return ones[0]


def _zero_or_one(text):
    """Returns 0 or 1 for a number or a boolean of pandas; None for other text."""
    integer, _, zeros = (text or "").lower().partition(".")
    if zeros.strip("0") or integer not in _ONE | _ZERO:
        return None
    return int(integer in _ONE)


def _check_alike(rows, paths, numbers, values):
    """Checks that duplicates of an image have the same label, group and split."""
    first: dict[int, tuple[str, str]] = {}
    for where, path, number, value in zip(
        rows.where, paths, numbers, () if values is None else values
    ):
        before, other = first.setdefault(number, (where, value))
        if value != other:
            raise DataError(f"{where}: {path} is '{value}', and '{other}' at {before}")


def _require_one_split(rows, column, groups, split_of):
    """Checks that no group is in two splits that are given."""
    first: dict[str, tuple[str, str]] = {}
    twice: dict[str, str] = {}
    for where, group, split in zip(rows.where, groups, split_of):
        before, other = first.setdefault(group, (where, split))
        if split != other:
            twice.setdefault(
                group,
                f"{where}: '{column}' is '{group}' in the split '{split}', and in '{other}' "
                f"at {before}",
            )
    if twice:
        more = f" ({len(twice)} groups are in two splits)" if len(twice) > 1 else ""
        raise DataError(
            f"{next(iter(twice.values()))}{more}. Put each group into one split, or remove "
            "--split_column to divide the groups, or --group_column to allow it"
        )


def _class_names(rows, label_columns, texts):
    if len(label_columns) > 1:
        return label_columns
    found = sorted_labels(filter(None, texts))
    twice = one_number(found)
    if twice:
        raise DataError(
            f"{rows.path}, column '{label_columns[0]}': the labels '{twice[0]}' and '{twice[1]}' "
            "are one number. Write it in one way"
        )
    return tuple(found)


def _to_labels(rows, texts, class_names):
    numbers = {name: number for number, name in enumerate(class_names)}
    for where, text in zip(rows.where, texts):
        if text and text not in numbers:
            raise DataError(
                f"{where}: unknown label '{text}'; the classes are {', '.join(class_names)}"
            )
    empty = [name for name in class_names if name not in set(texts)]
    if empty:
        raise DataError(f"no row has the label {', '.join(empty)}")
    return np.array([numbers.get(text, -1) for text in texts], np.int64)
