"""Raw files, plain or .gz, local or gs://."""

from __future__ import annotations

import codecs
import gzip
import zlib

import tensorflow as tf

from common import folders
from input_fns import DataError, memory

_PIECE_BYTES = 2**24


def read_bytes(path: str) -> bytes:
    """Returns the content of a file, unpacked if its name ends in .gz.

    Raises:
      DataError: it is missing, an invalid gzip file, or larger than half of the available memory.
    """
    room = memory.available_bytes() // 2
    data = read_start(path, room + 1)
    if len(data) > room:
        raise DataError(f"{path} holds more than half of the available memory, {room} bytes")
    return data


def read_start(path: str, num_bytes: int) -> bytes:
    """Returns up to `num_bytes` of the start of a file, unpacked if its name ends in .gz.

    Raises:
      DataError: it is missing, or an invalid gzip file.
    """
    if not folders.is_file(path, or_missing=True):
        raise DataError(f"{path} is not a file")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            if not path.endswith(".gz"):
                return _read(file, num_bytes)
            with gzip.GzipFile(fileobj=file) as unpacked:
                return _read(unpacked, num_bytes)
    except tf.errors.NotFoundError as error:
        raise DataError(f"{path} is not there") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        size = tf.io.gfile.stat(path).length
        raise DataError(f"{path} ({size} bytes) is no whole gzip file: {error}") from error


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
      DataError: it is missing, an invalid gzip file, or not UTF-8.
    """
    return decode(path, read_bytes(path)).removeprefix("\ufeff")


def read_lines(path: str) -> list[bytes]:
    """Returns the lines of a UTF-8 file, plain or .gz.

    Lines end at line feeds only. Removes a byte order mark and carriage returns at line ends.

    Raises:
      DataError: it is missing, an invalid gzip file, or not UTF-8.
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
