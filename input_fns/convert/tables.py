"""Tables of text in files: .tsv, .csv, .jsonl and .json, plain, .gz or .xz.

Columns of a .tsv are separated by tabs, and quotes are text, as in the files of GLUE. Those of a
.csv are separated by commas, with quotes as in RFC 4180. A .jsonl has one JSON object per line, and
a .json these or a list of objects. Another delimiter may be given.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from common import folders
from common.names import normalized, repeated, shown
from input_fns import DataError, json_fields
from input_fns.convert import inventory, split_names
from input_fns.convert.files import iterate_lines, note, read_lines, read_text, split_packed
from input_fns.convert.source import Options

_JSON = (".jsonl", ".ndjson", ".json")
EXTENSIONS = (".tsv", ".csv", *_JSON)
# Of a value in a CSV file: texts may be long, file names and labels not.
_MAX_TEXT, _MAX_VALUE = 2**31 - 1, 2**17
_MAX_SHOWN = 60  # characters of a column's name in an error
# Delimiters of tables with quotes; elsewhere, as in metadata.csv of LJSpeech, quotes are text.
_QUOTED = (",", ";", "\t")
_DELIMITERS = (";", "\t", "|", ",")
_RFC_4180: dict[str, Any] = {"strict": True}
_BACKSLASH: dict[str, Any] = {"strict": True, "doublequote": False, "escapechar": "\\"}
_PLAIN: dict[str, Any] = {"quoting": csv.QUOTE_NONE}
# First line that Excel understands.
_SEPARATOR_LINE = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Places(Sequence):
    """Places in a file for errors, such as "train.csv, line 7", with 8 bytes for each."""

    prefix: str
    numbers: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i):
        return f"{self.prefix}{self.numbers[i]}"

    def take(self, indices: Sequence[int]) -> Places:
        """Returns these places."""
        return Places(self.prefix, self.numbers[list(indices)])


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
      path: path of the file.
      columns: names of the columns, without surrounding white space.
      rows: values of each row, in the order of `columns`; None where a JSON object has no text or
        number.
      lines: line number of each row, from 1; the last one of a row with line feeds.
      unit: what the numbers count, "line", or "item" of a JSON list.
    """

    path: str
    columns: tuple[str, ...]
    rows: list[Sequence[str | None]]
    lines: list[int]
    unit: str = "line"

    def where(self, row: int) -> str:
        """Returns the place of a row, for errors."""
        return f"{self.path}, {self.unit} {self.lines[row]}"

    @property
    def places(self) -> Places:
        """The place of each row."""
        return Places(f"{self.path}, {self.unit} ", np.array(self.lines, np.int64))

    def column(self, name: str) -> list[str | None]:
        """Returns the values of a column as they are, such as texts.

        Raises:
          DataError: there is no such column.
        """
        name = normalized(name)
        if name not in self.columns:
            if not self.columns:
                raise DataError(f"{self.path} is empty")
            raise DataError(f"{self.path} has no column '{name}'; {self._describe()}")
        number = self.columns.index(name)
        return [row[number] for row in self.rows]

    def cleaned(self, name: str) -> list[str]:
        """Returns the values of a column of labels, ids or paths.

        They are without surrounding white space and in Unicode's composed form; "" for None.

        Raises:
          DataError: there is no such column.
        """
        known: dict[str | None, str] = {None: ""}  # labels repeat
        return [
            known[value] if value in known else known.setdefault(value, normalized(value))
            for value in self.column(name)
        ]

    def column_of(self, candidates: Sequence[str], flag: str, given: str = "") -> str:
        """Returns the name of a column: the given one, or that with a usual name.

        Args:
          candidates: usual names, the best first; upper and lower case are equal.
          flag: name of the flag that gives it.
          given: value of the flag; "" if unset.

        Raises:
          DataError: there is no such column; the message lists the columns and names the flag.
        """
        given = normalized(given)
        if given and given in self.columns:
            return given
        lower = {name.lower(): name for name in reversed(self.columns)}
        usual = [lower[name.lower()] for name in candidates if name.lower() in lower]
        if usual and not given:
            return usual[0]
        missing = f"'{given}' (--{flag})" if given else " or ".join(map(repr, candidates))
        advice = "" if given else f". Name it with --{flag}"
        raise DataError(f"{self.path} has no column {missing}; {self._describe()}{advice}")

    def _describe(self):
        return (
            f"it has: {listed(self.columns)}. If its first line is no header, name the columns "
            "with --columns"
        )


def listed(columns: Sequence[str]) -> str:
    """Returns names of columns for an error, shortened: without a header they are a row of text."""
    short = [name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}..." for name in columns]
    return ", ".join([*short[:10], *(["..."] if short[10:] else [])])


def split_name(name: str) -> tuple[str, str]:
    """Returns the stem and the extension of a table's file name; "" as extension of others."""
    stem, _ = split_packed(name)
    extension = next((ending for ending in EXTENSIONS if stem.lower().endswith(ending)), "")
    return stem[: len(stem) - len(extension)], extension


def named_files(options: Options) -> dict[str, str]:
    """Returns `{name without extension: path}` of the tables of --source; see `split_names`.

    A .json counts if it is the only kind, or if its name has a split: others describe data.
    """
    extensions = EXTENSIONS
    if not folders.is_file(options.source):
        stems = [split_name(name) for name in inventory.names(options.source, options)]
        has_others = any(extension not in ("", ".json") for _, extension in stems)
        has_splits = any(e == ".json" and split_names.split_in(stem) for stem, e in stems)
        extensions = EXTENSIONS[:-1] if has_others and not has_splits else EXTENSIONS
    return split_names.named_files(options, extensions)


def find_files(options: Options) -> dict[str, str]:
    """Returns `{split: path}` of the tables of --source; see `split_names.find_files`."""
    if options.split_files:
        return split_names.find_files(options, EXTENSIONS)
    return split_names.by_split(named_files(options), options)


def first_row(path: str) -> list[str]:
    """Returns the values of the first line of a .tsv; [""] if it is empty.

    Raises:
      DataError: the file is missing or its first line not UTF-8.
    """
    return next(iterate_lines(path), "").split("\t")


def read_with(options: Options, path: str) -> Table:
    """Reads a table as the flags --columns, --delimiter and --encoding say; see `read`."""
    return read(path, options.columns, delimiter=options.delimiter, encoding=options.encoding)


def read(
    path: str,
    columns: Sequence[str] = (),
    is_strict: bool = True,
    extension: str = "",
    delimiter: str = "",
    encoding: str | None = None,
) -> Table:
    """Reads a table.

    Args:
      path: local or gs://.
      columns: names of the columns of a .tsv or .csv without a header line; () if it has one.
      is_strict: whether a row of another number of columns is an error, or stays in the table.
        Empty values after the last column do not count.
      extension: one of `EXTENSIONS`; "" for that of the path.
      delimiter: character between the columns of a .tsv or .csv; "" for that of the extension.
      encoding: see `files.decode`.

    Raises:
      DataError: the file is missing, not of the format, or a row has too few or too many values.
    """
    columns = [normalized(name) for name in columns]
    extension = extension or split_name(path)[1]
    if extension in _JSON:
        return _read_json(path, encoding)
    if extension == ".tsv" and delimiter in ("", "\t"):
        rows, delimiter = _read_tsv(path, encoding), "\t"
    else:
        rows, delimiter = _read_delimited(path, delimiter, len(columns), encoding)
    if not columns:
        if not rows:
            raise DataError(f"{path} is empty: a header line is needed, or --columns")
        columns = [normalized(name) for name in rows.pop(0)[1]]
        _check_header(path, columns, delimiter)
    numbers = [number for number, _ in rows]
    fitted = [_fitted(values, columns) for _, values in rows]
    del rows  # a tuple for each
    for number, values in zip(numbers, fitted) if is_strict else ():
        if len(values) != len(columns):
            raise DataError(
                f"{path}, line {number}: {len(values)} values instead of {len(columns)}: "
                f"{listed(columns)}{_other_delimiter(values, delimiter)}"
            )
    return Table(path, tuple(columns), fitted, numbers)


def _check_header(path, columns, delimiter):
    twice = repeated(filter(None, columns))
    if twice:
        raise DataError(f"{path} has more than one column '{twice[0]}'")
    hint = _other_delimiter(columns, delimiter)
    if hint:
        raise DataError(f"{path} has one column, '{shown(columns[0][:_MAX_SHOWN])}'{hint}")


def _other_delimiter(values, delimiter):
    """Returns advice if the only value of a line has another delimiter in it, else ""."""
    other = next((d for d in _DELIMITERS if d != delimiter and d in values[0]), "")
    if len(values) > 1 or not other:
        return ""
    name = "tab" if other == "\t" else f"'{other}'"
    return f". If its columns are separated by {name}, set --delimiter={name}"


def _fitted(values, columns):
    """Returns the values of a row without empty ones after the last column, as Excel adds them.

    Missing values of columns without a name are empty.
    """
    width = len(columns)
    if len(values) > width and not any(values[width:]):
        return values[:width]
    if len(values) < width and not any(columns[len(values) :]):
        return [*values, *[""] * (width - len(values))]
    return values


def _read_tsv(path, encoding):
    lines = read_lines(path, encoding)
    while lines and not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        if b"\0" in line:
            raise DataError(f"{path}, line {number}: a NUL byte")
    return [(number, line.decode().split("\t")) for number, line in enumerate(lines, start=1)]


def _read_delimited(path, delimiter, width, encoding):
    """Returns the rows of a table with quotes or without, and its delimiter.

    Args:
      path: the file.
      delimiter: "" for that of the first line of Excel, or a comma.
      width: number of columns, 0 if there is a header line.
      encoding: see `read`.
    """
    text, skipped = _text_of_csv(path, encoding), 0
    named = _SEPARATOR_LINE.match(text)
    if named and delimiter in ("", named[1]):
        text, skipped, delimiter = text[named.end() :], 1, named[1]
    delimiter = delimiter or ","
    others = {"quotes in it are read as text": _PLAIN}
    dialect = _RFC_4180 if delimiter in _QUOTED else _PLAIN
    if delimiter != "\t":
        has_backslashes = dialect is _RFC_4180 and '\\"' in text
        others = {"quotes in it are escaped by backslashes": _BACKSLASH} if has_backslashes else {}
    rows, error = _parse(text, delimiter, dialect)
    if dialect is _RFC_4180 and f'{delimiter} "' in text and _has_spaces(rows):
        rows, error = _parse(text, delimiter, {**dialect, "skipinitialspace": True})
    if error or not _is_regular(rows, width):
        for how, other in others.items():
            found, problem = _parse(text, delimiter, other)
            if not problem and _is_regular(found, width):
                note(f"{path}: {how}")
                rows, error = found, None
    if error:
        last = rows[-1][0] + skipped if rows else skipped
        raise DataError(
            f"{path}, after line {last}: no CSV ({error}); a quote may have no other"
        ) from error
    if skipped:
        rows = [(number + skipped, values) for number, values in rows]
    return rows, delimiter


def _has_spaces(rows):
    """Whether the first row has a space after each delimiter, where quotes may follow."""
    names = rows[0][1][1:] if rows else ()
    return bool(names) and all(name.startswith(" ") for name in names)


def _is_regular(rows, width):
    """Whether all rows have a value for each column, and there are two columns or more."""
    columns = rows[0][1] if rows and not width else ["x"] * width
    return len(columns) > 1 and all(
        len(_fitted(values, columns)) == len(columns) for _, values in rows
    )


def read_csv(path: str, longest: int = _MAX_VALUE) -> list[tuple[int, list[str]]]:
    """Returns the last line number and the values of each row of a CSV file, plain, .gz or .xz.

    Args:
      path: local or gs://.
      longest: limit of the characters of a value.

    Raises:
      DataError: the file is missing or not CSV.
    """
    rows, error = _parse(_text_of_csv(path, None), ",", _RFC_4180, longest)
    if error:
        raise DataError(
            f"{path}, after line {rows[-1][0] if rows else 0}: no CSV ({error}); a quote may have "
            "no other"
        ) from error
    return rows


def _text_of_csv(path, encoding):
    text = read_text(path, encoding)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path}, line {line}: a NUL byte")
    return text


def _parse(text, delimiter, dialect, longest=_MAX_TEXT):
    """Returns `(last line number, values)` of the rows before an error, and the error or None."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, **dialect)
    rows = []
    before = csv.field_size_limit(longest)
    try:
        rows.extend((reader.line_num, values) for values in reader if values)
    except csv.Error as error:
        return rows, error
    finally:
        csv.field_size_limit(before)
    return rows, None


def _read_json(path, encoding):
    text = read_text(path, encoding)
    unit, found = "line", []
    if text.lstrip().startswith("["):
        unit, found = "item", list(enumerate(_loads(text, path), start=1))
    else:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                found.append((number, _loads(line, f"{path}, line {number}")))
    if len(found) == 1 and isinstance(found[0][1], dict):
        _check_one_row(found[0][1], path)
    for number, item in found:
        _check_object(item, f"{path}, {unit} {number}")
    columns: dict[str, str] = {}  # {key: name}
    for _, item in found:
        columns.update((key, normalized(key)) for key in item if key not in columns)
    twice = repeated(columns.values())
    if twice:
        raise DataError(f"{path} has more than one key '{twice[0]}'")
    rows = [[_text(item.get(key)) for key in columns] for _, item in found]
    return Table(path, tuple(columns.values()), rows, [number for number, _ in found], unit)


def _loads(text, where):
    try:
        return json_fields.loads(text)
    except DataError as error:
        raise DataError(
            f"{where}: {error}. Write a list of objects, or one object per line"
        ) from error


def _check_one_row(item, path):
    """Checks that the only object is a row, and not columns or a list under a key."""
    if item and all(isinstance(value, (dict, list)) for value in item.values()):
        raise DataError(
            f"{path} is one object with {listed(list(item))}, each of many values. Write a list of "
            "objects, such as by to_json(orient='records') of pandas, or one object per line"
        )


def _check_object(item, where):
    if not isinstance(item, dict):
        raise DataError(f"{where}: a JSON {type(item).__name__} instead of an object")
    for name, value in item.items():
        for text in (name, value) if isinstance(value, str) else (name,):
            json_fields.utf8_text(text, f"{where}: {name[:_MAX_SHOWN]!a}")


def _text(value):
    """Returns a JSON value as text; None for null, lists and objects."""
    if isinstance(value, (bool, int, float)):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value if isinstance(value, str) else None
