"""Raw files, plain, .gz or .xz, local or gs://."""

from __future__ import annotations

import codecs
import contextlib
import contextvars
import gzip
import io
import itertools
import lzma
import os
import zlib
from collections.abc import Callable, Iterator

from common import files, folders, names
from input_fns import DataError
from input_fns.convert import encodings
from input_fns.convert.archive_members import Member, MemberError, MemberFile
from input_fns.core import memory

PACKED = (".gz", ".xz")
# Paths that were opened since `recording` began, or None.
_opened_paths: contextvars.ContextVar[set[str] | None] = contextvars.ContextVar(
    "opened_paths", default=None
)
# How `note` prints a line, and the lines that it has printed.
_notes: contextvars.ContextVar[tuple[Callable[[str], None], set[str]] | None] = (
    contextvars.ContextVar("notes", default=None)
)
_PIECE_BYTES = 2**24
_MARK_BYTES = 4  # of the longest byte order mark
# A longer line is rather a file of another kind.
_MAX_LINE_BYTES = 2**26


class Content(str):
    """The name of a file whose content is in memory, such as an image of another format's records.

    Attributes:
      data: the content.
    """

    data: bytes

    def __new__(cls, name: str, data: bytes):
        """Takes the name and the content."""
        self = super().__new__(cls, name)
        self.data = data
        return self


@contextlib.contextmanager
def recording(progress: Callable[[str], None] = lambda line: None) -> Iterator[set[str]]:
    """Yields the set of the paths that this module opens; `progress` prints each note once."""
    paths: set[str] = set()
    token, before = _opened_paths.set(paths), _notes.set((progress, set()))
    try:
        yield paths
    finally:
        _opened_paths.reset(token)
        _notes.reset(before)


def note(line: str) -> None:
    """Prints a line about how a file is read, once for all reads of a `recording`."""
    progress, printed = _notes.get() or (None, {line})
    if line not in printed:
        printed.add(line)
        progress(line)


def note_western(path: str) -> None:
    """Prints that a file is read as Windows-1252."""
    note(
        f"{path} is not UTF-8: read as Windows-1252 (cp1252). If letters are wrong, name its "
        "encoding with --encoding"
    )


def open_file(path: str):
    """Opens a file to read bytes, local, gs://, in an archive or in memory.

    Raises:
      OSError, OpError: it is missing or not a file.
      MemberError: the archive is damaged.
    """
    if isinstance(path, Content):
        return io.BytesIO(path.data)
    record(path)
    if isinstance(path, Member):
        return MemberFile(files.open_bytes(path.copy or path.archive), path)
    if not names.is_remote(path) and not os.path.isfile(path) and os.path.exists(path):
        raise OSError("it is not a file")  # such as a pipe, which never ends
    return files.open_bytes(path)


def record(path: str) -> None:
    """Adds the path of a file that is read, or of its archive, to those of `recording`."""
    if _opened_paths.get() is not None:
        _opened_paths.get().add(path.archive if isinstance(path, Member) else path)


def num_bytes(path: str) -> int:
    """Returns the size of a file; of one in a zip, its compressed size."""
    if isinstance(path, Content):
        return len(path.data)
    return path.size if isinstance(path, Member) else folders.num_bytes(path)


def read_bytes(path: str) -> bytes:
    """Returns the content of a file, unpacked if its name ends in .gz or .xz.

    Raises:
      DataError: it is missing, an invalid packed file, or larger than half of the available memory.
    """
    room = memory.available_bytes() // 2
    data = read_start(path, room + 1)
    if len(data) > room:
        raise DataError(f"{path} holds more than half of the available memory, {room} bytes")
    return data


def read_start(path: str, num_bytes: int) -> bytes:
    """Returns up to `num_bytes` of the start of a file, unpacked if its name ends in .gz or .xz.

    Raises:
      DataError: it is missing, or an invalid packed file.
    """
    with opened(path) as file:
        return _read(file, num_bytes)


def split_packed(name: str) -> tuple[str, str]:
    """Returns a file name without .gz or .xz, and that ending or ""."""
    ending = next((ending for ending in PACKED if name.endswith(ending)), "")
    return name[: len(name) - len(ending)], ending


@contextlib.contextmanager
def opened(path: str):
    """Opens a file that may be packed; errors while it is read become `DataError`s."""
    if not folders.is_file(path, or_missing=True):
        raise DataError(f"{path} is not a file")
    try:
        with open_file(path) as file:
            if path.endswith(".gz"):
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield unpacked
            elif path.endswith(".xz"):
                with lzma.LZMAFile(file) as unpacked:
                    yield unpacked
            else:
                yield file
    except folders.missing_error(path) as error:
        raise DataError(f"{path} is not there") from error
    except MemberError as error:
        raise DataError(f"{path}: {error}. Download {path.archive} again") from error
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        size = num_bytes(path)
        kind = "gzip" if path.endswith(".gz") else "xz"
        raise DataError(f"{path} ({size} bytes) is not a complete {kind} file: {error}") from error


def iterate_lines(
    path: str, encoding: str | None = None, offset: int = 0, end: int | None = None
) -> Iterator[str]:
    """Yields the lines of a text file of any size, as `read_lines`.

    Args:
      path: local or gs://.
      encoding: see `decode`.
      offset: where the first line begins, if it is not that of the file: bytes of the unpacked one.
      end: where the last line ends, if it is not that of the file; likewise.

    Raises:
      DataError: see `read_lines`, or a line is longer than 64 MiB.
    """
    with opened(path) as file:
        if offset:  # a file in an archive cannot seek
            file.seek(offset)
        file = file if end is None else _Start(file, end - offset)
        start = _read(file, max(_PIECE_BYTES, _MARK_BYTES))
        marked, size = ("", 0) if offset else encodings.split_mark(start)
        name = marked or encodings.name_of(encoding)
        has_flag = encoding is not None and not marked
        pieces = itertools.chain([start[size:]], iter(lambda: file.read(_PIECE_BYTES), b""))
        if name != "utf-8":
            yield from _decoded_lines(path, pieces, name, has_flag, bool(marked))
            return
        encodings.check_start(path, start, has_flag)
        may_be_western = encoding == "" and not marked
        for number, line in enumerate(_split_lines(path, pieces, b""), start=1):
            try:
                yield line.decode(name)
            except UnicodeDecodeError as error:
                if not (may_be_western and name == "utf-8" and _is_western(path)):
                    raise encodings.error(
                        path, line, error, name, has_flag, number - 1, _pieces(path), bool(marked)
                    ) from error
                name = encodings.WESTERN
                note_western(path)
                yield line.decode(name)


class _Start:
    """The next bytes of a file, as a file."""

    def __init__(self, file, num_bytes: int):
        self._file, self._left = file, num_bytes

    def read(self, num_bytes: int) -> bytes:
        """Returns up to `num_bytes`."""
        piece = self._file.read(min(num_bytes, self._left))
        self._left -= len(piece)
        return piece


def _split_lines(path, pieces, rest):
    """Yields the lines of pieces of bytes or of text; `rest` is an empty one."""
    line_feed, carriage_return = ("\n", "\r") if rest == "" else (b"\n", b"\r")
    number = 0
    for piece in pieces:
        *lines, rest = (rest + piece).split(line_feed)
        for line in lines:
            number += 1
            yield line.removesuffix(carriage_return)
        if len(rest) > _MAX_LINE_BYTES:
            raise DataError(f"{path}, line {number + 1}: over 64 MiB")
    if rest:
        yield rest.removesuffix(carriage_return)


def _decoded_lines(path, pieces, name, has_flag, is_marked):
    """Yields the lines of bytes in an encoding whose line feeds may have several bytes."""
    decoder, number = codecs.getincrementaldecoder(name)(), 0

    def decoded():
        nonlocal number
        for piece in itertools.chain(pieces, [b""]):
            before = decoder.getstate()[0]
            try:
                text = decoder.decode(piece, final=not piece)
            except UnicodeError as error:
                raise encodings.error(
                    path, before + piece, error, name, has_flag, number, _pieces(path), is_marked
                ) from error
            number += text.count("\n")
            yield _as_utf8_text(path, text)

    return _split_lines(path, decoded(), "")


def _is_western(path):
    return encodings.is_western(_pieces(path))


def _pieces(path):
    """Yields the bytes of a file without a byte order mark."""
    with opened(path) as file:
        start = _read(file, _MARK_BYTES)
        yield start[encodings.split_mark(start)[1] :]
        yield from iter(lambda: file.read(_PIECE_BYTES), b"")


def _as_utf8_text(path, text):
    """Returns text; some encodings hold lone surrogates, which UTF-8 does not."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{path} has a lone surrogate, which no UTF-8 text has") from error
    return text


def _read(file, num_bytes):
    # In pieces: some file objects allocate the requested size.
    pieces = []
    while num_bytes > 0:
        piece = file.read(min(num_bytes, _PIECE_BYTES))
        if not piece:
            break
        pieces.append(piece)
        num_bytes -= len(piece)
    return b"".join(pieces)


def read_text(path: str, encoding: str | None = None) -> str:
    """Returns the text of a file; see `read_bytes` and `decode`."""
    return decode(path, read_bytes(path), encoding)


def read_lines(path: str, encoding: str | None = None) -> list[bytes]:
    """Returns the lines of a text file, plain, .gz or .xz, in UTF-8.

    Lines end at line feeds only. Removes a byte order mark and carriage returns at line ends.

    Args:
      path: local or gs://.
      encoding: see `decode`.

    Raises:
      DataError: it is missing, an invalid packed file, or has another encoding.
    """
    data = _in_utf8(path, read_bytes(path), encoding)
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def _in_utf8(path, data, encoding):
    """Returns the bytes of a text in UTF-8, without a copy if they are; see `decode`."""
    if data and not encoding and not encodings.split_mark(data)[0] and encodings.is_utf8(data):
        encodings.check_start(path, data, encoding is not None)
        return data
    return decode(path, data, encoding).encode()


def decode(path: str, data: bytes, encoding: str | None = None) -> str:
    """Returns the text of bytes, without a byte order mark, which names their encoding.

    Args:
      path: where they are from, for errors.
      data: the bytes.
      encoding: encoding of bytes without a byte order mark. "" is UTF-8, or Windows-1252 if they
        evidently are. None, of sources without --encoding, is UTF-8.

    Raises:
      DataError: the bytes have another encoding; the message names the line.
    """
    marked, size = encodings.split_mark(data)
    has_flag = encoding is not None and not marked
    name = marked or encodings.name_of(encoding)
    if name == "utf-8":
        encodings.check_start(path, data, has_flag)
    try:
        return _as_utf8_text(path, data[size:].decode(name))
    except UnicodeError as error:
        if encoding == "" and not marked and encodings.is_western([data]):
            note_western(path)
            return data.decode(encodings.WESTERN)
        raise encodings.error(
            path, data[size:], error, name, has_flag, is_marked=bool(marked)
        ) from error
