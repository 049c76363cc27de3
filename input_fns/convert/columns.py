"""Columns of tables, found by a flag or by usual names, their splits and their classes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from common.names import (
    first_of,
    is_line,
    missing_label,
    normalized,
    one_number,
    sorted_labels,
)
from input_fns import DataError
from input_fns.convert import files, split_names, tables
from input_fns.convert.options import Options
from input_fns.convert.source import chosen
from input_fns.convert.tables import Table, listed

_LONGEST_LABEL = 1000  # characters
# More classes of whole numbers with fewer labels each are rather numbers.
_MOST_CLASSES, _FEWEST_LABELS = 20, 2
_NUMBER = re.compile(r"[+-]?([0-9]{1,300}\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?")
_ONE, _ZERO = {"true", "1"}, {"false", "0"}
# Between labels of a cell, and how --label_separator names them.
_SEPARATORS = {" ": "space", "\t": "tab", ",": "','", ";": "';'", "|": "'|'"}
_NO_LETTERS = re.compile(r"[\W_]+")


def find(
    path: str, columns: Sequence[str], usual: Sequence[str], flag: str, given: str = ""
) -> str | None:
    """Returns the given column, or the only one with a usual name; None if there is none.

    Args:
      path: the file, for errors.
      columns: names of its columns.
      usual: names in lower case, without spaces and signs: "userid" is also "User-ID".
      flag: name of the flag that names the column.
      given: value of the flag, "" if unset.

    Raises:
      DataError: the given column is not there, or two columns have usual names.
    """
    given = normalized(given)
    if given:
        if given not in columns:
            raise DataError(
                f"{path} has no column '{given}' (--{flag}); {tables.describe(columns)}"
            )
        return given
    found = [name for name in columns if _key(name) in usual]
    if len(found) > 1:
        raise DataError(
            f"{path} has the columns {' and '.join(map(repr, found[:3]))}: choose one with --{flag}"
        )
    return found[0] if found else None


def require(
    path: str, columns: Sequence[str], usual: Sequence[str], flag: str, given: str = ""
) -> str:
    """Returns the column as `find`.

    Raises:
      DataError: see `find`, or there is no such column.
    """
    found = find(path, columns, usual, flag, given)
    if found is None:
        raise DataError(
            f"{path} has no column {' or '.join(map(repr, usual[:3]))}; "
            f"{tables.describe(columns)}. Name the column with --{flag}"
        )
    return found


def _key(name):
    return _NO_LETTERS.sub("", name).lower()


def split_tables(
    options: Options, read: Callable[[Options, str], Table] = tables.read_with
) -> dict[str, Table]:
    """Returns `{split: table}` of the tables of --source, by their names or by --split_column.

    Args:
      options: see `split_names`; `split_column`.
      read: reads a file.

    Raises:
      DataError: see `split_names.find_files` and `by_column`.
    """
    if not options.split_column:
        if options.split_files:
            found = split_names.find_files(options, tables.EXTENSIONS)
        else:
            found = split_names.by_split(tables.named_files(options), options)
        return {split: read(options, path) for split, path in found.items()}
    splits: dict[str, Table] = {}
    for path in tables.named_files(options).values():
        for split, table in by_column(read(options, path), options).items():
            if split in splits:
                raise DataError(f"{splits[split].path} and {path} both have the split '{split}'")
            splits[split] = table
    return splits


def by_column(table: Table, options: Options) -> dict[str, Table]:
    """Returns `{split: rows}` of a table, by the values of --split_column.

    Raises:
      DataError: there is no such column, or a value is no split.
    """
    values = table.cleaned(options.split_column)
    where = f"{table.path}, column '{options.split_column}'"
    return {
        split: take(table, rows)
        for split, rows in split_names.rows_of_splits(values, where).items()
    }


def take(table: Table, rows: Sequence[int]) -> Table:
    """Returns a table of these rows."""
    return dataclasses.replace(
        table, rows=chosen(table.rows, rows), lines=chosen(table.lines, rows)
    )


def class_names(labels: Sequence[str], places: Sequence[str], where: str) -> tuple[str, ...]:
    """Returns the distinct labels, sorted, as numbers if all are; "" is none.

    Args:
      labels: label of each row.
      places: place of each row, for errors.
      where: place of the column, for errors.

    Raises:
      DataError: two labels are one number, or one stands for a missing label.
    """
    found = sorted_labels(filter(None, labels))
    twice = one_number(found)
    if twice:
        raise DataError(
            f"{where}: the labels '{twice[0]}' and '{twice[1]}' are one number. Use one spelling"
        )
    missing = missing_label(found)
    if missing:
        raise DataError(
            f"{places[labels.index(missing)]}: the label '{missing}' stands for a missing one. "
            "Remove such rows, or name all classes with --class_names"
        )
    return tuple(found)


def note_other_tasks(class_names: Sequence[str], num_labels: int, where: str) -> None:
    """Prints that the classes of a column look like the target of another task.

    A class such as "rust scab" is a list of others: several labels. Classes such as "3.37" are
    numbers to regress, and so are whole numbers that hardly repeat, such as prices.

    Args:
      class_names: those of a column.
      num_labels: number of rows with a label.
      where: place of the column.
    """
    _note_lists(class_names, where)
    if not all(map(_NUMBER.fullmatch, class_names)):
        return
    fractions = [name for name in class_names if float(name) % 1]
    count = len(class_names)
    are_repeated = count <= _MOST_CLASSES or num_labels >= _FEWEST_LABELS * count
    if fractions or not are_repeated:
        files.note(
            f"{where}: {count} classes, all of them numbers, such as "
            f"'{(fractions or class_names)[0]}'. To predict the number, use --task=regression"
        )


def _note_lists(class_names, where):
    known = set(class_names)
    for separator, flag in _SEPARATORS.items():
        lists = [
            name
            for name in class_names
            if separator in name and {part.strip() for part in name.split(separator)} <= known
        ]
        if lists:
            files.note(
                f"{where}: {len(lists)} of {len(known)} classes are lists of others, such as "
                f"'{lists[0]}'. For several labels per example use --task=multilabel "
                f"--label_separator={flag}"
            )


def require_values(
    noun: str,
    column: str,
    values: Sequence[str | None],
    where: Sequence[str],
    rows: Iterable[int],
) -> None:
    """Checks that each row has a value in a column.

    Args:
      noun: what the values are, for the error.
      column: name of the column, for the error.
      values: values of all rows, without surrounding white space.
      where: place of each row, for the error.
      rows: numbers of the rows that need a value.

    Raises:
      DataError: some have none; the message has the first such row and their number.
    """
    empty = [row for row in rows if not values[row]]
    if empty:
        raise DataError(
            f"{where[empty[0]]}: no {noun} in column '{column}'{first_of(len(empty))}. "
            f"{'Add it, or remove the row' if len(empty) == 1 else 'Add them, or remove the rows'}"
        )


def label_of(where: str, values: Mapping[str, str | None]) -> str:
    """Returns the label of a row.

    Args:
      where: place of the row, for errors.
      values: values of the label columns: one label, or 0 and 1 for each class.

    Raises:
      DataError: the label is invalid.
    """
    if len(values) == 1:
        (label,) = values.values()
        if not is_line(label):
            raise DataError(f"{where}: the label {label[:60]!a} has control characters")
        if len(label) > _LONGEST_LABEL:
            raise DataError(f"{where}: the label '{label[:60]}...' has {len(label)} characters")
        return label
    numbers = {name: zero_or_one(value) for name, value in values.items()}
    ones = [name for name, number in numbers.items() if number == 1]
    if len(ones) != 1 or None in numbers.values():
        shown = listed([f"{name}={value}" for name, value in values.items()])
        raise DataError(
            f"{where}: exactly one of the label columns should be 1 and the others 0: {shown}. "
            "--label_columns says which columns are labels. If several or none of them may be 1, "
            "use --task=multilabel; for probabilities --task=soft_labels; for numbers "
            "--task=regression"
        )
    return ones[0]


def zero_or_one(text: str | None) -> int | None:
    """Returns 0 or 1 for a number or a boolean of pandas; None for other text."""
    integer, _, zeros = (text or "").lower().partition(".")
    if zeros.strip("0") or integer not in _ONE | _ZERO:
        return None
    return int(integer in _ONE)
