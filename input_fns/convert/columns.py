"""Finds columns of tables by a flag or by usual names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from common.names import normalized, printable
from input_fns import DataError
from input_fns.convert.tables import listed

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
            f"{path} has no column such as {' or '.join(map(repr, usual[:3]))}; "
            f"{describe(columns)}. Name it with --{flag}"
        )
    return found


def describe(columns: Sequence[str]) -> str:
    """Returns the end of an error: the columns, and what to do if they are no header."""
    return (
        f"it has: {printable(listed(columns))}. If its first line is no header, name the columns "
        "with --columns"
    )


def _key(name):
    return _NO_LETTERS.sub("", name).lower()
