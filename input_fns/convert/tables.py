"""Tables of text in files: .tsv, .csv, .jsonl and .json, plain, .gz or .xz.

Columns of a .tsv are separated by tabs, and quotes are text, as in the files of GLUE. Those of a
.csv are separated by commas, with quotes as in RFC 4180. A .jsonl has one JSON object per line, and
a .json these or a list of objects. Another delimiter may be given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from common import folders
from common.names import normalized, repeated, shown
from input_fns import DataError
from input_fns.convert import delimited, inventory, json_rows, split_names
from input_fns.convert.files import split_packed
from input_fns.convert.options import Options

_JSON = (".jsonl", ".ndjson", ".json")
EXTENSIONS = (".tsv", ".csv", *_JSON)
_MAX_SHOWN = 60  # characters of a column's name in an error


@dataclasses.dataclass(frozen=True)
class Places(Sequence):
    """Places in a file for errors, such as "train.csv, line 7", with 8 bytes for each."""

    prefix: str
    numbers: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: int | Sequence[int]) -> str | Places:
        numbers = self.numbers[i]
        return Places(self.prefix, numbers) if numbers.ndim else f"{self.prefix}{numbers}"


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
      path: path of the file.
      columns: names of the columns, without surrounding white space.
      rows: values of each row, in the order of `columns`; None where a JSON object has no text or
        number.
      lines: line number of each row, from 1; the first one of a row with line feeds.
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
        number = self.columns.index(self.known(name))
        return [row[number] for row in self.rows]

    def known(self, name: str) -> str:
        """Returns the name of a column as it is in `columns`.

        Raises:
          DataError: there is no such column.
        """
        name = normalized(name)
        if name not in self.columns:
            if not self.columns:
                raise DataError(f"{self.path} is empty")
            raise DataError(f"{self.path} has no column '{name}'; {describe(self.columns)}")
        return name

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


def describe(columns: Sequence[str]) -> str:
    """Returns the end of an error: the columns, and what to do if they are no header."""
    return (
        f"it has: {listed(columns)}. If its first line is not a header, name the columns with "
        "--columns"
    )


def listed(columns: Sequence[str]) -> str:
    """Returns names of columns for an error, shortened: without a header they are a row of text."""
    short = [name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}..." for name in columns]
    return shown(", ".join([*short[:10], *(["..."] if short[10:] else [])]))


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


def read_with(options: Options, path: str) -> Table:
    """Reads a table as the flags --columns, --delimiter and --encoding say; see `read`.

    Raises:
      DataError: see `read`, or it is JSON, for which the first two have no effect.
    """
    for name in ("columns", "delimiter") if split_name(path)[1] in _JSON else ():
        if getattr(options, name):
            raise DataError(f"--{name} has no effect on {path}: JSON names its values. Remove it")
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
        return Table(path, *json_rows.read(path, encoding))
    if extension == ".tsv" and delimiter in ("", "\t"):
        rows, delimiter = delimited.read_tsv(path, encoding, len(columns), is_strict), "\t"
    else:
        default = "\t" if extension == ".tsv" else ","
        if not columns or (is_strict and columns[1:]):
            _check_first_row(path, columns, delimiter, default, encoding)
        rows, delimiter = delimited.read(path, delimiter, len(columns), encoding)
    if not columns:
        if not rows:
            raise DataError(f"{path} is empty: a header line is needed, or --columns")
        columns = [normalized(name) for name in rows.pop(0)[1]]
        _check_header(path, columns, delimiter)
    delimited.require_values(path, len(rows), len(columns), sum(len(values) for _, values in rows))
    numbers = [number for number, _ in rows]
    width, named = len(columns), delimited.num_named(columns)
    fitted = [
        delimited.fitted(values, width, named) if is_strict or any(values) else values
        for _, values in rows
    ]
    del rows  # a tuple for each
    for number, values in zip(numbers, fitted) if is_strict else ():
        if len(values) != len(columns):
            raise DataError(
                f"{path}, line {number}: {_wrong_width(values, columns)}"
                f"{_hint(values, columns, delimiter)}"
            )
    return Table(path, tuple(columns), fitted, numbers)


def _wrong_width(values, columns):
    return f"{len(values)} values instead of {len(columns)}: {listed(columns)}"


def _hint(values, columns, delimiter):
    if len(values) > len(columns) and delimiter != "\t":
        return f". Put a value that contains '{delimiter}' in double quotes"
    return delimited.other_delimiter(values, delimiter)


def _check_first_row(path, columns, given, default, encoding):
    """Checks the delimiter, before quotes are read with a wrong one and a row is invalid."""
    values = delimited.first_row(path, given, encoding)
    hint = values and delimited.other_delimiter(values, given or default, given and default)
    if not hint:
        return
    if columns:
        raise DataError(f"{path}, line 1: {_wrong_width(values, columns)}{hint}")
    header = shown(values[0][:_MAX_SHOWN])
    if given:
        raise DataError(f"{path}: no {given!a} (--delimiter) in its header '{header}'{hint}")
    raise DataError(f"{path} has one column, '{header}'{hint}")


def _check_header(path, columns, delimiter):
    twice = repeated(filter(None, columns))
    if twice:
        raise DataError(
            f"{path} has more than one column '{twice[0]}'. If its first line is not a header, "
            "name the columns with --columns"
        )
    hint = delimited.other_delimiter(columns, delimiter)
    if hint:
        raise DataError(f"{path} has one column, '{shown(columns[0][:_MAX_SHOWN])}'{hint}")
