"""Tables of text in files: .tsv, .csv and .jsonl, plain, .gz or .xz.

Columns of a .tsv are separated by tabs, and quotes are text, as in the files of GLUE. Those of a
.csv are separated by commas, with quotes as in RFC 4180. A .jsonl has one JSON object per line.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence

from common.names import repeated
from input_fns import DataError, json_fields
from input_fns.convert.files import iterate_lines, read_lines, read_text, split_packed

EXTENSIONS = (".tsv", ".csv", ".jsonl")
# Of a value in a CSV file: texts may be long, file names and labels not.
_MAX_TEXT, _MAX_VALUE = 2**31 - 1, 2**17
_MAX_SHOWN = 60  # characters of a column's name in an error


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
      path: path of the file.
      columns: names of the columns.
      rows: values of each row, in the order of `columns`; None where a JSON object has no text or
        number.
      lines: line number of each row, from 1; the last one of a row with line feeds.
    """

    path: str
    columns: tuple[str, ...]
    rows: list[Sequence[str | None]]
    lines: list[int]

    def where(self, row: int) -> str:
        """Returns the place of a row, for errors."""
        return f"{self.path}, line {self.lines[row]}"

    def column(self, name: str) -> list[str | None]:
        """Returns the values of a column.

        Raises:
          DataError: there is no such column.
        """
        if name not in self.columns:
            if not self.columns:
                raise DataError(f"{self.path} is empty")
            raise DataError(
                f"{self.path} has no column '{name}'; it has: {listed(self.columns)}. If its first "
                "line is no header, name the columns with --columns"
            )
        number = self.columns.index(name)
        return [row[number] for row in self.rows]


def listed(columns: Sequence[str]) -> str:
    """Returns names of columns for an error, shortened: without a header they are a row of text."""
    shown = [name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}..." for name in columns]
    return ", ".join([*shown[:10], *(["..."] if shown[10:] else [])])


def split_name(name: str) -> tuple[str, str]:
    """Returns the stem and the extension of a table's file name; "" as extension of others."""
    stem, _ = split_packed(name)
    extension = next((ending for ending in EXTENSIONS if stem.endswith(ending)), "")
    return stem[: len(stem) - len(extension)], extension


def first_row(path: str) -> list[str]:
    """Returns the values of the first line of a .tsv; [""] if it is empty.

    Raises:
      DataError: the file is missing or its first line not UTF-8.
    """
    return next(iterate_lines(path), "").split("\t")


def read(
    path: str, columns: Sequence[str] = (), is_strict: bool = True, extension: str = ""
) -> Table:
    """Reads a table.

    Args:
      path: local or gs://.
      columns: names of the columns of a .tsv or .csv without a header line; () if it has one.
      is_strict: whether a row of another number of columns is an error, or stays in the table.
      extension: one of `EXTENSIONS`; "" for that of the path.

    Raises:
      DataError: the file is missing, not of the format, or a row has too few or too many values.
    """
    extension = extension or split_name(path)[1]
    if extension == ".jsonl":
        return _read_json(path)
    rows = _read_tsv(path) if extension == ".tsv" else read_csv(path, _MAX_TEXT)
    if not columns:
        if not rows:
            raise DataError(f"{path} is empty: a header line is needed, or --columns")
        columns = rows.pop(0)[1]
        twice = repeated(filter(None, columns))
        if twice:
            raise DataError(f"{path} has more than one column '{twice[0]}'")
    for number, values in rows if is_strict else ():
        if len(values) != len(columns):
            raise DataError(
                f"{path}, line {number}: {len(values)} values instead of {len(columns)}: "
                f"{listed(columns)}"
            )
    numbers, values = zip(*rows) if rows else ((), ())
    return Table(path, tuple(columns), list(values), list(numbers))


def _read_tsv(path):
    lines = read_lines(path)
    while lines and not lines[-1]:
        lines.pop()
    return [(number, line.decode().split("\t")) for number, line in enumerate(lines, start=1)]


def read_csv(path: str, longest: int = _MAX_VALUE) -> list[tuple[int, list[str]]]:
    """Returns the last line number and the values of each row of a CSV file, plain, .gz or .xz.

    Args:
      path: local or gs://.
      longest: limit of the characters of a value.

    Raises:
      DataError: the file is missing or not CSV.
    """
    text = read_text(path)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path}, line {line}: a NUL byte")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows, last = [], 0
    before = csv.field_size_limit(longest)
    try:
        for values in reader:
            last = reader.line_num
            if values:
                rows.append((last, values))
    except csv.Error as error:
        raise DataError(
            f"{path}, after line {last}: no CSV ({error}); a quote may have no other"
        ) from error
    finally:
        csv.field_size_limit(before)
    return rows


def _read_json(path):
    objects, numbers = [], []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            found = json_fields.loads(line.decode())
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
        if not isinstance(found, dict):
            raise DataError(f"{where}: a JSON {type(found).__name__} instead of an object")
        for name, value in found.items():
            for text in (name, value) if isinstance(value, str) else (name,):
                json_fields.utf8_text(text, f"{where}: {name[:_MAX_SHOWN]!a}")
        objects.append(found)
        numbers.append(number)
    columns = tuple(dict.fromkeys(name for found in objects for name in found))
    rows = [[_text(found.get(name)) for name in columns] for found in objects]
    return Table(path, columns, rows, numbers)


def _text(value):
    """Returns a JSON value as text; None for null, lists and objects."""
    if isinstance(value, (bool, int, float)):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value if isinstance(value, str) else None
