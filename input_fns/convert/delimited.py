"""Rows of tables with delimiters: .tsv and .csv, with quotes or without."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from common.names import shown
from input_fns import DataError
from input_fns.convert import encodings
from input_fns.convert.files import iterate_lines, note, read_lines, read_start, read_text

_SMALL_TABLE = 2**24  # values, with missing ones
_START_BYTES = 2**16
_MAX_TEXT = 2**31 - 1  # characters of a value
# Delimiters of tables with quotes; elsewhere, as in metadata.csv of LJSpeech, quotes are text.
QUOTED = (",", ";", "\t")
_DELIMITERS = (";", "\t", "|", ",")
RFC_4180: dict[str, Any] = {"strict": True}
_BACKSLASH: dict[str, Any] = {"strict": True, "doublequote": False, "escapechar": "\\"}
PLAIN: dict[str, Any] = {"quoting": csv.QUOTE_NONE}
ENCLOSED = re.compile('"[^"]*"')
# First line that Excel understands.
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?\n', re.IGNORECASE)


def require_values(path: str, num_rows: int, num_columns: int, num_values: int) -> None:
    """Checks that most values of a table are not missing: rows times columns must fit in memory.

    Raises:
      DataError: it is a large table with a value in less than one of 64 places.
    """
    if num_rows * num_columns > max(_SMALL_TABLE, 64 * num_values):
        raise DataError(
            f"{path} has {num_rows} rows and {num_columns} different columns, and only "
            f"{num_values} values. Write the same few columns in all rows"
        )


def iterate(
    path: str, given: str, default: str, has_columns: bool, encoding: str | None
) -> Iterator[tuple[int, list[str]]]:
    """Yields the first line number and the values of each row that is not empty.

    The file may be of any size.

    Quotes may enclose values between commas and semicolons; elsewhere they are text.

    Args:
      path: the file.
      given: characters between the values; "" for those of the first line of Excel, or `default`.
      default: the usual ones of the file.
      has_columns: whether names of the columns are given.
      encoding: see `files.decode`.

    Raises:
      DataError: the first line has another delimiter, or a quote has no other.
    """
    lines = iterate_lines(path, encoding)
    first, num_before = next(lines, ""), 0
    named, delimiter = SEPARATOR_LINE.match(f"{first}\n"), given or default
    if named:
        delimiter = given or named[1]
        first, num_before = next(lines, ""), 1
    others = [d for d in ("\t", "::", ";", "|", ",") if first.count(d) > 1]
    if delimiter not in first and others and not has_columns:
        raise DataError(
            f"{path}, line 1: no {delimiter!a} in {shown(first[:60])!a}"
            f"{_advice(others[0], given and default)}"
        )
    lines = itertools.chain([first], lines)
    if delimiter not in QUOTED[:2]:
        for number, line in enumerate(lines, start=1 + num_before):
            if line:
                yield number, [value.strip() for value in line.split(delimiter)]
        return
    # With line feeds: one inside of quotes is part of the value.
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    begin = 1 + num_before
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_TEXT))
    try:
        for values in reader:
            if values:
                yield begin, [value.strip() for value in values]
            begin = reader.line_num + 1 + num_before
    except csv.Error as error:
        raise DataError(f"{path}, line {begin}: invalid CSV ({error})") from error


def read_tsv(
    path: str, encoding: str | None, width: int, has_quotes: bool
) -> list[tuple[int, list[str]]]:
    """Returns the first line number and the values of each row, which tabs separate.

    Quotes are text.

    Args:
      path: the file.
      encoding: see `files.decode`.
      width: number of columns, 0 if there is a header line.
      has_quotes: whether quotes may enclose values, with line feeds or tabs, if all rows have a
        value for each column only then.

    Raises:
      DataError: see `files.read_lines`, or a line has a NUL byte.
    """
    lines = read_lines(path, encoding)
    while lines and not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        if b"\0" in line:
            raise DataError(f"{path}, line {number}: a NUL byte")
    rows = [(number, line.decode().split("\t")) for number, line in enumerate(lines, start=1)]
    header = rows[0][1] if rows and not width else ()
    is_enclosed = bool(header) and all(map(ENCLOSED.fullmatch, header))
    if not has_quotes or (_is_regular(rows, width) and not is_enclosed):
        return rows
    found, error = parse(b"\n".join(lines).decode(), "\t", RFC_4180)
    columns = width or len(header)
    num_whole = sum(len(values) == columns for _, values in rows)  # an open quote would join them
    if error or not _is_regular(found, width) or len(found) < num_whole:
        return rows
    note(f"{path}: quotes in it enclose values")
    return found


def read(
    path: str, delimiter: str, width: int, encoding: str | None
) -> tuple[list[tuple[int, list[str]]], str]:
    """Returns the first line number and the values of each row of a table, and its delimiter.

    Args:
      path: the file.
      delimiter: "" for that of the first line of Excel, or a comma.
      width: number of columns, 0 if there is a header line.
      encoding: see `files.decode`.

    Raises:
      DataError: the file is missing, or has an opening quote without another.
    """
    text, skipped = read_text(path, encoding), 0
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path}, line {line}: a NUL byte")
    named = SEPARATOR_LINE.match(text)
    if named and delimiter in ("", named[1]):
        text, skipped, delimiter = text[named.end() :], 1, named[1]
    delimiter = delimiter or ","
    others = {"quotes in it are read as text": PLAIN}
    dialect = RFC_4180 if delimiter in QUOTED else PLAIN
    if delimiter != "\t":
        has_backslashes = dialect is RFC_4180 and '\\"' in text
        others = {"quotes in it are escaped by backslashes": _BACKSLASH} if has_backslashes else {}
    rows, error = parse(text, delimiter, dialect)
    if dialect is RFC_4180 and f'{delimiter} "' in text and rows and has_spaces(rows[0][1]):
        rows, error = parse(text, delimiter, {**dialect, "skipinitialspace": True})
    if error or not _is_regular(rows, width):
        for how, other in others.items():
            found, problem = parse(text, delimiter, other)
            if not problem and _is_regular(found, width):
                note(f"{path}: {how}")
                rows, error = found, None
    if error:
        raise DataError(
            f"{path}, line {error.line + skipped}: invalid CSV ({error.cause}); a quote may have "
            "no other"
        ) from error.cause
    if skipped:
        rows = [(number + skipped, values) for number, values in rows]
    return rows, delimiter


def has_spaces(values: Sequence[str]) -> bool:
    """Whether the first row has a space after each delimiter, where quotes may follow."""
    return len(values) > 1 and all(value.startswith(" ") for value in values[1:])


def _is_regular(rows, width):
    """Whether all rows have a value for each column, and there are two columns or more."""
    columns = rows[0][1] if rows and not width else ["x"] * width
    named = num_named(columns)
    return len(columns) > 1 and all(fits(values, len(columns), named) for _, values in rows)


def num_named(columns: Sequence[str]) -> int:
    """Returns the number of columns up to the last one that has a name."""
    return max((number for number, name in enumerate(columns, start=1) if name), default=0)


def fits(values: list[str], width: int, named: int) -> bool:
    """Whether a row has a value for each column; see `fitted`."""
    if len(values) > width:
        return not any(values[width:])
    return len(values) >= named or not any(map(str.strip, values))


def fitted(values: list[str], width: int, named: int) -> list[str]:
    """Returns the values of a row without empty ones after the last column, as Excel adds them.

    Missing values of columns without a name are empty, and so are all of a blank line.

    Args:
      values: the values.
      width: number of columns.
      named: see `num_named`.
    """
    if len(values) == width or not fits(values, width, named):
        return values
    if len(values) < width and not any(map(str.strip, values)):
        return [""] * width
    return [*values[:width], *[""] * (width - len(values))]


def other_delimiter(values: Sequence[str], delimiter: str, default: str = "") -> str:
    """Returns advice if the only value of a line has another delimiter in it, else "".

    Args:
      values: those of the line.
      delimiter: the character that did not split it.
      default: the usual one of the file, if --delimiter names another one.
    """
    other = max((d for d in _DELIMITERS if d != delimiter), key=values[0].count)
    if len(values) > 1 or other not in values[0]:
        return ""
    return _advice(other, default)


def _advice(delimiter, default):
    """Returns the flag for a delimiter; to omit it if that is the default, which is not used."""
    name = "tab" if delimiter == "\t" else f"'{delimiter}'"
    flag = "leave out --delimiter" if delimiter == default else f"set --delimiter={name}"
    return f". If its columns are separated by {name}, {flag}"


def first_row(path: str, delimiter: str, encoding: str | None) -> list[str]:
    """Returns the values of the first row of a table with delimiters; [] if its end is not found.

    Reads the start of the file only.

    Args:
      path: the file.
      delimiter: "" for that of the first line of Excel, or a comma.
      encoding: see `files.decode`.

    Raises:
      DataError: the file is missing, or not text.
    """
    start = read_start(path, _START_BYTES)
    marked, size = encodings.split_mark(start)
    name = marked or encodings.name_of(encoding)
    if name == "utf-8":
        encodings.check_start(path, start, encoding is not None and not marked)
    head = start[size:].decode(name, "ignore")
    named = SEPARATOR_LINE.match(head)
    if named and delimiter in ("", named[1]):
        head, delimiter = head[named.end() :], named[1]
    delimiter = delimiter or ","
    reader = csv.reader(
        io.StringIO(head, newline=""),
        delimiter=delimiter,
        **(RFC_4180 if delimiter in QUOTED else PLAIN),
    )
    try:
        values = next(filter(None, reader), [])
    except csv.Error:  # such as after a quote that the right delimiter follows
        line = head.partition("\n")[0].rstrip("\r")
        return [] if delimiter in line else [line]
    return values if reader.line_num < head.count("\n") or len(start) < _START_BYTES else []


class InvalidRow(NamedTuple):
    """The first line number of a row that is not CSV, and the error."""

    line: int
    cause: csv.Error


def parse(
    text: str, delimiter: str, dialect: Mapping[str, Any]
) -> tuple[list[tuple[int, list[str]]], InvalidRow | None]:
    """Returns `(first line number, values)` of the rows before an invalid one, and that or None."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, **dialect)
    rows, begin = [], 1
    before = csv.field_size_limit(_MAX_TEXT)
    try:
        for values in reader:
            if values:
                rows.append((begin, values))
            begin = reader.line_num + 1  # a value in quotes may have line feeds
    except csv.Error as error:
        return rows, InvalidRow(begin, error)
    finally:
        csv.field_size_limit(before)
    return rows, None
