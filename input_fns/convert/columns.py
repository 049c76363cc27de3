"""Finds columns of tables by a flag or by usual names, and parts tables into splits."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from common.names import normalized, printable
from input_fns import DataError
from input_fns.convert import tables
from input_fns.convert.source import Options
from input_fns.convert.split_names import rows_of_splits
from input_fns.convert.tables import Table, listed

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
            raise DataError(f"{path} has no column '{given}' (--{flag}); {describe(columns)}")
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
            f"{path} has no column {' or '.join(map(repr, usual[:3]))}; {describe(columns)}. Name "
            f"the column with --{flag}"
        )
    return found


def describe(columns: Sequence[str]) -> str:
    """Returns the end of an error: the columns, and what to do if they are no header."""
    return (
        f"it has: {printable(listed(columns))}. If its first line is not a header, name the "
        "columns with --columns"
    )


def _key(name):
    return _NO_LETTERS.sub("", name).lower()


def split_tables(options: Options) -> dict[str, Table]:
    """Returns `{split: table}` of the tables of --source, by their names or by --split_column.

    Raises:
      DataError: see `tables.find_files` and `by_column`.
    """
    if not options.split_column:
        found = tables.find_files(options)
        return {split: tables.read_with(options, path) for split, path in found.items()}
    splits: dict[str, Table] = {}
    for path in tables.named_files(options).values():
        for split, table in by_column(tables.read_with(options, path), options).items():
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
    return {split: take(table, rows) for split, rows in rows_of_splits(values, where).items()}


def take(table: Table, rows: Sequence[int]) -> Table:
    """Returns a table of these rows."""
    return dataclasses.replace(
        table, rows=[table.rows[row] for row in rows], lines=[table.lines[row] for row in rows]
    )
