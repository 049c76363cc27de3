"""Large tables whose texts do not stay in memory: worker processes read parts of a file.

A file is cut after line feeds that are outside of quotes, as far as the number of quotes before
them tells. If each part is then complete when it is parsed, each began where a row does, and the
parts have the rows of the file. Any other file is read as a whole by `tables`: one whose rows
differ in width, with an error, not in UTF-8, packed, or JSON.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import hashlib
import io
from collections.abc import Iterator, Sequence

import numpy as np

from common import folders
from common.names import normalized, repeated
from input_fns.convert import delimited, encodings, files, tables
from input_fns.convert.options import Options
from input_fns.convert.runners import Runner
from input_fns.convert.shared_array import SharedArray, SharedRows, SharedTexts
from input_fns.convert.tables import Table

_PART_BYTES = 2**22
_START_BYTES = 2**16


class _OtherFormError(Exception):
    """The file is to be read as a whole."""


@dataclasses.dataclass(frozen=True)
class LargeTable(Table):
    """Some columns of a table.

    Attributes:
      rows: numbers of the rows in the other arrays, int64 `[size]`.
      texts: `{column: values}` of columns of texts; "" for white space.
      labels: `{column: (names, number of the name of each row)}` of columns of labels, cleaned.
      keys: uint64, equal for rows of equal texts.
    """

    texts: dict[str, SharedTexts] = dataclasses.field(default_factory=dict)
    labels: dict[str, tuple[list[str], np.ndarray]] = dataclasses.field(default_factory=dict)
    keys: np.ndarray | None = None

    def column(self, name: str) -> SharedTexts:
        """See `Table.column`; for columns of texts."""
        return self.texts[self.known(name)][self.rows]

    def cleaned(self, name: str) -> list[str]:
        """See `Table.cleaned`; for columns of labels."""
        names, numbers = self.labels[self.known(name)]
        return [names[number] for number in numbers[self.rows].tolist()]

    @property
    def groups(self) -> np.ndarray:
        """Equal numbers for rows of equal texts, in the order in which they appear first."""
        _, first, group = np.unique(self.keys[self.rows], return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[group]


@dataclasses.dataclass(frozen=True)
class _Form:
    """How the rows of a file are read.

    Attributes:
      path: the file.
      begin: first byte after a byte order mark.
      delimiter: character between the columns.
      dialect: arguments of `csv.reader`; None if tabs separate the columns and quotes are text.
      has_header: whether the first row has the names of the columns.
      columns: their names.
      width: number of values that each row needs, see `delimited.num_named`.
      texts: numbers of the columns of texts.
      labels: numbers of the columns of labels.
    """

    path: str
    begin: int
    delimiter: str
    dialect: dict | None
    has_header: bool
    columns: tuple[str, ...]
    width: int
    texts: tuple[int, ...]
    labels: tuple[int, ...]


@dataclasses.dataclass
class _Part:
    """Rows of a part.

    Attributes:
      num_lines: number of lines.
      num_values: number of values.
      num_blank: number of empty lines at the end, which are rows.
      lines: see `Table`, from the start of the part.
      texts: UTF-8 of all texts of the first column, then of the next one, uint8; or None.
      lengths: number of bytes of each text, int32 `[columns, rows]`.
      labels: names and numbers of the rows, of each column of labels.
      keys: see `LargeTable`.
    """

    num_lines: int
    num_values: int
    num_blank: int
    lines: np.ndarray
    texts: np.ndarray | None
    lengths: np.ndarray
    labels: list[tuple[list[str], np.ndarray]]
    keys: np.ndarray


def read(
    options: Options, path: str, texts: Sequence[str], labels: Sequence[str], runner: Runner
) -> Table:
    """Returns the table that `tables.read_with` does, a `LargeTable` if it is one.

    Args:
      options: see `tables.read_with`.
      path: local or gs://.
      texts: names of columns, for `Table.column`.
      labels: names of columns, for `Table.cleaned`.
      runner: reads the parts.

    Raises:
      DataError: see `tables.read_with`.
    """
    with contextlib.suppress(_OtherFormError):
        return _read_parts(_find_form(options, path, texts, labels), runner)
    return tables.read_with(options, path)


def _find_form(options, path, texts, labels):
    """Returns the form of a file."""
    extension = tables.split_name(path)[1]
    is_plain = extension in (".tsv", ".csv") and not files.split_packed(path)[1]
    if not (is_plain and folders.is_file(path) and files.num_bytes(path) > _PART_BYTES):
        raise _OtherFormError
    start = files.read_start(path, _START_BYTES)
    marked, mark = encodings.split_mark(start)
    if (marked or encodings.name_of(options.encoding)) != "utf-8":
        raise _OtherFormError
    encodings.check_start(path, start, options.encoding is not None and not marked)
    delimiter, dialect = options.delimiter or ",", delimited.RFC_4180
    if extension == ".tsv" and options.delimiter in ("", "\t"):
        delimiter, dialect = "\t", None
    elif delimiter not in delimited.QUOTED:
        dialect = delimited.PLAIN
    head = start[mark:].decode("utf-8", "ignore")
    first = _first_row(head, delimiter, dialect)
    columns = tuple(map(normalized, options.columns or first))
    is_odd = delimited.SEPARATOR_LINE.match(head) or len(columns) < 2
    if dialect is None:
        is_odd = is_odd or all(map(delimited.ENCLOSED.fullmatch, first))
    else:
        is_odd = is_odd or delimited.has_spaces(first)
    if not options.columns:
        is_odd = is_odd or repeated(filter(None, columns))
        is_odd = is_odd or delimited.other_delimiter(columns, delimiter)
    if is_odd:
        raise _OtherFormError
    width = len(columns) if options.columns else delimited.num_named(first)
    found = [
        tuple(columns.index(normalized(name)) for name in names if normalized(name) in columns)
        for names in (texts, filter(None, labels))
    ]
    if len(found[0]) < len(texts):  # an error
        raise _OtherFormError
    return _Form(path, mark, delimiter, dialect, not options.columns, columns, width, *found)


def _first_row(head, delimiter, dialect):
    """Returns the values of the first row of the start of a file."""
    if dialect is None:
        if "\n" not in head:
            raise _OtherFormError
        return head.partition("\n")[0].removesuffix("\r").split("\t")
    reader = csv.reader(io.StringIO(head, newline=""), delimiter=delimiter, **dialect)
    try:
        found = next(filter(None, reader), [])
    except csv.Error as error:
        raise _OtherFormError from error
    if reader.line_num >= head.count("\n"):  # it may be longer
        raise _OtherFormError
    return found


def _read_parts(form, runner):
    parts: list[_Part] = []
    read_part = functools.partial(_read_part, form)
    bounds = _cut(form.path, form.begin, form.dialect is delimited.RFC_4180)
    with contextlib.closing(runner.apply(read_part, bounds)) as results:

        def texts():
            for part in results:
                if part is None:
                    raise _OtherFormError
                yield part.texts
                part.texts = None
                parts.append(part)

        shared = SharedArray.write(runner.folder, texts())
    size = sum(len(part.lines) for part in parts)
    num_values = sum(part.num_values for part in parts)
    for part in reversed(parts):  # empty lines at the end of a .tsv are no rows
        size, num_values = size - part.num_blank, num_values - part.num_blank
        if part.num_blank < len(part.lines):
            break
    delimited.require_values(form.path, size, len(form.columns), num_values)
    if not size:
        raise _OtherFormError
    lengths = np.concatenate([part.lengths for part in parts], axis=1)
    # Of each part the texts of one column follow those of the other.
    ends = np.cumsum(np.concatenate([part.lengths.ravel() for part in parts]), dtype=np.int64)
    cuts = np.cumsum([part.lengths.size for part in parts])[:-1]
    by_part = [of_part.reshape(len(lengths), -1) for of_part in np.split(ends, cuts)]
    begins = np.concatenate(by_part, axis=1) - lengths
    num_before = np.cumsum([0, *(part.num_lines for part in parts)])
    return LargeTable(
        form.path,
        form.columns,
        np.arange(size),
        np.concatenate([part.lines + before for part, before in zip(parts, num_before)])[:size],
        texts={
            form.columns[column]: SharedTexts(SharedRows(shared, begins[i], lengths[i]))
            for i, column in enumerate(form.texts)
        },
        labels={
            form.columns[column]: _joined_labels([part.labels[i] for part in parts])
            for i, column in enumerate(form.labels)
        },
        keys=np.concatenate([part.keys for part in parts]),
    )


def _joined_labels(parts):
    number_of: dict[str, int] = {}
    numbers = []
    for names, of_part in parts:
        found = [number_of.setdefault(name, len(number_of)) for name in names]
        numbers.append(np.array(found, np.int32)[of_part])
    return list(number_of), np.concatenate(numbers)


def _cut(path: str, begin: int, has_quotes: bool) -> Iterator[tuple[int, int]]:
    """Yields first and last byte of parts, which end after a line feed, maybe outside of quotes."""
    place, is_first, is_quoted = begin, True, False
    with files.open_file(path) as file:
        file.seek(begin)
        for piece in iter(lambda: file.read(_PART_BYTES), b""):
            inside = 0
            while not is_first and (inside := piece.find(b"\n", counted := inside) + 1):
                is_quoted ^= has_quotes and piece.count(b'"', counted, inside) % 2 == 1
                if not is_quoted:
                    yield begin, place + inside
                    begin = place + inside
                    break
            else:
                inside = 0 if is_first else counted
            is_quoted ^= has_quotes and piece.count(b'"', inside) % 2 == 1
            place, is_first = place + len(piece), False
    if begin < place:
        yield begin, place


def _read_part(form: _Form, bounds: tuple[int, int]) -> _Part | None:
    """Returns the rows of a part; None if it does not have the form."""
    begin, end = bounds
    with files.open_file(form.path) as file:
        file.seek(begin)
        data = file.read(end - begin)
    if b"\0" in data or len(data) != end - begin:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    num_blank = 0
    if form.dialect is None:
        lines = text.removesuffix("\n").split("\n")
        lines = [line.removesuffix("\r") for line in lines] if "\r" in text else lines
        rows, num_lines = [line.split("\t") for line in lines], len(lines)
        numbers = range(1, num_lines + 1)
        while num_blank < num_lines and not lines[-1 - num_blank]:
            num_blank += 1
    else:
        found, error = delimited.parse(text, form.delimiter, form.dialect)
        if error:
            return None
        numbers, rows = zip(*found) if found else ((), ())
        num_lines = text.count("\n")
        if "\r" in text or not text.endswith("\n"):
            num_lines = sum(1 for _ in io.StringIO(text, newline=""))
    width, named = len(form.columns), delimited.num_named(form.columns)
    if not all(delimited.fits(values, width, form.width) for values in rows):
        return None
    is_first = form.has_header and begin == form.begin
    rows, num_values = rows[is_first:], sum(map(len, rows[is_first:]))
    rows = [delimited.fitted(values, width, named) for values in rows]
    columns = [[_text(values[column]) for values in rows] for column in form.texts]
    return _Part(
        num_lines,
        num_values,
        min(num_blank, len(rows)),
        np.array(numbers[is_first:], np.int64),
        np.frombuffer(b"".join(each for column in columns for each in column), np.uint8),
        np.array([list(map(len, column)) for column in columns], np.int32),
        [_numbered([values[column] for values in rows]) for column in form.labels],
        np.frombuffer(b"".join(map(_key, zip(*columns))), np.uint64),
    )


def _text(value):
    return value.encode() if value.strip() else b""


def _key(texts):
    return hashlib.blake2b(b"\0".join(texts), digest_size=8).digest()


def _numbered(values):
    """Returns the distinct values, cleaned, and the number of that of each row."""
    number_of: dict[str, int] = {}
    numbers = [number_of.setdefault(value, len(number_of)) for value in values]
    return list(map(normalized, number_of)), np.array(numbers, np.int32)
