"""Raw files, plain, .gz or .xz, local or gs://."""

from __future__ import annotations

import codecs
import contextlib
import contextvars
import gzip
import lzma
import zlib
from collections.abc import Iterator

import tensorflow as tf

from common import folders
from input_fns import DataError, memory

PACKED = (".gz", ".xz")
# Paths that were opened since `recording` began, or None.
_opened_paths: contextvars.ContextVar[set[str] | None] = contextvars.ContextVar(
    "opened_paths", default=None
)
_PIECE_BYTES = 2**24
# A longer line is rather a file of another kind.
_MAX_LINE_BYTES = 2**26


@contextlib.contextmanager
def recording() -> Iterator[set[str]]:
    """Yields the set of the paths that this module opens in the `with` block."""
    paths: set[str] = set()
    token = _opened_paths.set(paths)
    try:
        yield paths
    finally:
        _opened_paths.reset(token)


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
    with _opened(path) as file:
        return _read(file, num_bytes)


def split_packed(name: str) -> tuple[str, str]:
    """Returns a file name without .gz or .xz, and that ending or ""."""
    ending = next((ending for ending in PACKED if name.endswith(ending)), "")
    return name[: len(name) - len(ending)], ending


@contextlib.contextmanager
def _opened(path):
    """Opens a file that may be packed; errors while it is read become `DataError`s."""
    if _opened_paths.get() is not None:
        _opened_paths.get().add(path)
    if not folders.is_file(path, or_missing=True):
        raise DataError(f"{path} is not a file")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            if path.endswith(".gz"):
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield unpacked
            elif path.endswith(".xz"):
                with lzma.LZMAFile(file) as unpacked:
                    yield unpacked
            else:
                yield file
    except tf.errors.NotFoundError as error:
        raise DataError(f"{path} is not there") from error
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        size = tf.io.gfile.stat(path).length
        kind = "gzip" if path.endswith(".gz") else "xz"
        raise DataError(f"{path} ({size} bytes) is not a complete {kind} file: {error}") from error


def iterate_lines(path: str) -> Iterator[str]:
    """Yields the lines of a UTF-8 file of any size, as `read_lines`.

    Raises:
      DataError: see `read_lines`, or a line is longer than 64 MiB.
    """
    with _opened(path) as file:
        rest, number = b"", 0
        while True:
            piece = file.read(_PIECE_BYTES)
            *lines, rest = (rest + piece).split(b"\n")
            if not piece and rest:
                lines, rest = [rest], b""
            if len(rest) > _MAX_LINE_BYTES:
                raise DataError(f"{path}, line {number + 1 + len(lines)}: over 64 MiB")
            for line in lines:
                number += 1
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                try:
                    yield line.removesuffix(b"\r").decode()
                except UnicodeDecodeError as error:
                    raise DataError(f"{path}, line {number}: no UTF-8 ({error.reason})") from error
            if not piece:
                return


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


def read_text(path: str) -> str:
    """Returns the text of a UTF-8 file.

    Raises:
      DataError: it is missing, an invalid packed file, or not UTF-8.
    """
    return decode(path, read_bytes(path)).removeprefix("\ufeff")


def read_lines(path: str) -> list[bytes]:
    """Returns the lines of a UTF-8 file, plain, .gz or .xz.

    Lines end at line feeds only. Removes a byte order mark and carriage returns at line ends.

    Raises:
      DataError: it is missing, an invalid packed file, or not UTF-8.
    """
    data = read_bytes(path)
    decode(path, data)
    lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def decode(path: str, data: bytes) -> str:
    """Returns the text of UTF-8 bytes.

    Raises:
      DataError: the bytes are not UTF-8; the message names the line.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}, byte {error.start}: no UTF-8 ({error.reason})"
        ) from error
